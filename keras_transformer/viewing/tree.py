"""Draws the beam as a tree: a column for each step, a line to each child."""

import math
from collections.abc import Sequence

from keras_transformer.viewing import svg
from keras_transformer.viewing.hypotheses import Fate, Node

COLUMN = 84  # Between two steps, in pixels.
ROW = 40  # Between two hypotheses of a step.
EDGE = 44
# The colour of each fate; nodes also differ in shape and title.
COLOURS = {
    Fate.FOLLOWED: "#0072b2",
    Fate.PRUNED: "#8a9199",
    Fate.RETURNED: "#009e73",
    Fate.DISPLACED: "#d55e00",
    Fate.GIVEN_UP: "#b3548e",
}
LONGEST = 11  # Characters of a label.

Point = tuple[float, float]


def picture(nodes: Sequence[Node]) -> str:
    """Draw all hypotheses that a search weighed.

    Args:
        nodes: The nodes in the order of the steps, the best of a step first.

    Returns:
        The text of an SVG file. A line is wider the more probable its piece.
    """
    places = _places(nodes)
    start = (float(EDGE), float(EDGE))
    lines, marks = [], [_start(start)]
    for node, place in zip(nodes, places, strict=True):
        before, so_far = start, 0.0
        if node.parent >= 0:
            before = places[node.parent]
            so_far = nodes[node.parent].log_prob
        probability = math.exp(min(0.0, node.log_prob - so_far))
        lines.append(_line(before, place, node.fate, probability))
        marks.append(_mark(node, place, probability))
    width = max((x for x, _ in places), default=start[0]) + EDGE
    height = max((y for _, y in places), default=start[1]) + EDGE / 2
    legend, legend_width = _legend(height + ROW / 2)
    return svg.document(
        max(width, legend_width),
        height + ROW,
        f"Beam search: {len(nodes)} hypotheses weighed",
        [*lines, *marks, legend],
    )


def _start(place: Point) -> str:
    x, y = place
    dot = svg.element("circle", cx=x, cy=y, r=3, fill=svg.DIM)
    return svg.element("g", dot + _label("<s>", place))


def _places(nodes: Sequence[Node]) -> list[Point]:
    """Place each node: its step, and its place among that step's."""
    places, filled = [], [0] * len(nodes)
    for node in nodes:
        x = EDGE + COLUMN * (node.step + 1)
        places.append((float(x), float(EDGE + ROW * filled[node.step])))
        filled[node.step] += 1
    return places


def _line(start: Point, end: Point, fate: Fate, probability: float) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) / 2
    return svg.element(
        "path",
        d=f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}",
        fill="none",
        stroke=COLOURS[fate],
        stroke_width=f"{0.75 + 4 * probability:.2f}",
        stroke_opacity=f"{0.25 + 0.6 * probability:.2f}",
    )


def _mark(node: Node, place: Point, probability: float) -> str:
    """Draw a node's shape and piece, with all its data in the title."""
    title = (
        f"{node.piece}, step {node.step + 1}: {node.fate.value}, probability "
        f"{probability:.3f}, log-probability {node.log_prob:.3f}, score "
        f"{node.score:.3f}"
    )
    content = svg.element("title", svg.text(title)) + shape(node.fate, place)
    if node.rank >= 0:
        content += svg.label(
            str(node.rank + 1),
            *place,
            text_anchor="middle",
            font_size=10,
            fill="#ffffff",
        )
    return svg.element("g", content + _label(node.piece, place))


def shape(fate: Fate, place: Point) -> str:
    """Return the shape of a fate, for people who do not see its colour."""
    x, y = place
    colour = COLOURS[fate]
    if fate is Fate.FOLLOWED:
        return svg.element("circle", cx=x, cy=y, r=5, fill=colour)
    if fate is Fate.RETURNED:
        return svg.element("circle", cx=x, cy=y, r=9, fill=colour)
    outlines = {
        Fate.PRUNED: f"M{x - 4} {y - 4}l8 8m0 -8l-8 8",
        Fate.DISPLACED: f"M{x} {y - 7}l7 7l-7 7l-7 -7z",
        Fate.GIVEN_UP: f"M{x - 5} {y - 5}h10v10h-10z",
    }
    return svg.element(
        "path", d=outlines[fate], fill="#ffffff", stroke=colour, stroke_width=2
    )


def _label(piece: str, place: Point) -> str:
    shown = piece if len(piece) <= LONGEST else f"{piece[: LONGEST - 1]}…"
    x, y = place
    return svg.label(
        shown, x, y - 13, text_anchor="middle", dominant_baseline=None
    )


def _legend(y: float) -> tuple[str, float]:
    """Draw each shape and its meaning; return their width too."""
    parts, x = [], float(EDGE)
    for fate in Fate:
        parts += [shape(fate, (x, y)), svg.label(fate.value, x + 14, y)]
        x += 14 + svg.width_of(fate.value) + 20
    return svg.element("g", "".join(parts)), x
