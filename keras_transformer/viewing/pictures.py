"""Draws attention and the beam as SVG, for where no script runs.

Axes: Q pieces that attend, K pieces that are attended to.
"""

import collections
import math
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.viewing.hypotheses import Fate, Node

INK, DIM, WHITE = "#1b1f24", "#6a737d", "#ffffff"
# Okabe and Ito's colours, which colour-blind people can tell apart. They mark
# heads, as in the viewer's `elements.js`.
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7"),
    *("#56b4e9", "#d55e00", "#f0e442", "#000000"),
)
# No line is drawn for less, as in the viewer's `lines.js`; at most 100 weights
# of a row are larger.
FAINTEST = 0.01
# In pixels: the size of text; the edges; the height of a piece and the width
# between two columns of them; the place of the tree's start, the width of a
# step and the height of a hypothesis.
FONT, EDGE = 13, 12
ROW, GAP = 20, 240
START, STEP, LEVEL = 44, 84, 40
LONGEST = 11  # Characters of a label in the tree.
# For each fate the colour of its mark, the colour inside, and the shape, for
# people who do not see colours.
MARKS = {
    Fate.FOLLOWED: ("#0072b2", "#0072b2", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"),
    Fate.PRUNED: ("#8a9199", WHITE, "M-4-4l8 8m0-8l-8 8"),
    Fate.RETURNED: (
        "#009e73",
        "#009e73",
        "M-8 0a8 8 0 1 0 16 0a8 8 0 1 0-16 0z",
    ),
    Fate.DISPLACED: ("#d55e00", WHITE, "M0-7l7 7l-7 7l-7-7z"),
    Fate.GIVEN_UP: ("#b3548e", WHITE, "M-5-5h10v10h-10z"),
}
# Characters that XML cannot hold, escaped or not.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def lines(
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Mapping[int | None, np.ndarray],
    row: int | None = None,
) -> str:
    """Draw lines between words, as in figures 3 to 5 of the paper.

    Args:
        queries: Q pieces, on the left.
        keys: K pieces, on the right.
        heads: Weights `(Q, K)` by the number of the head from 0, or None for
            the mean of all, from the back to the front.
        row: The only one of the Q pieces to draw lines from; by default all.

    Returns:
        The text of an SVG file. A line's opacity is its weight.
    """
    left = EDGE + max(map(width_of, queries), default=0.0)
    right = left + GAP

    def height(place: int) -> float:
        return EDGE + ROW * (place + 1.5)

    svg = _picture(f"Attention from {len(queries)} to {len(keys)} pieces")
    x: float = EDGE
    for place, (number, weights) in enumerate(heads.items()):
        name, look = "mean of all heads", {"stroke": DIM}
        if number is not None:
            name = f"head {number + 1}"
            look["stroke"] = COLOURS[number % len(COLOURS)]
            if number >= len(COLOURS):  # The first one's colour again.
                look["stroke_dasharray"] = "5 3"
        # Side by side, or the last would hide the others.
        shift = 2.0 * (place - (len(heads) - 1) / 2)
        for i, j in np.argwhere(weights >= FAINTEST):
            if row in (None, i):
                _add(
                    svg,
                    "line",
                    x1=left + 6,
                    y1=height(i) + shift,
                    x2=right - 6,
                    y2=height(j) + shift,
                    stroke_width=2,
                    stroke_opacity=f"{weights[i, j]:.3f}",
                    **look,
                )
        _add(svg, "path", d=f"M{x:g} {EDGE + 1}h18", stroke_width=6, **look)
        _label(svg, name, x + 23, EDGE + 1)
        x += 33 + width_of(name)
    for i, word in enumerate(queries):
        fill = INK if row in (None, i) else DIM
        _label(svg, word, left, height(i), text_anchor="end", fill=fill)
    for j, word in enumerate(keys):
        _label(svg, word, right, height(j))
    width = right + max(map(width_of, keys), default=0.0) + EDGE
    rows = max(len(queries), len(keys))
    return _finished(svg, max(width, x), 2 * EDGE + ROW * (rows + 1))


def tree(nodes: Sequence[Node]) -> str:
    """Draw all hypotheses that a search weighed, a column for each step.

    Args:
        nodes: The nodes in the order of the steps, the best of a step first.

    Returns:
        The text of an SVG file. A line is wider the more probable its piece.
    """
    svg = _picture(f"Beam search: {len(nodes)} hypotheses weighed")
    links, marks = _add(svg, "g"), _add(svg, "g")
    places = [(START, START)]  # Of the start, then of each node.
    filled: collections.Counter[int] = collections.Counter()
    _add(marks, "circle", cx=START, cy=START, r=3, fill=DIM)
    _piece(marks, "<s>", START, START)
    for node in nodes:
        x0, y0 = places[node.parent + 1]
        x, y = START + STEP * (node.step + 1), START + LEVEL * filled[node.step]
        places.append((x, y))
        filled[node.step] += 1
        before = nodes[node.parent].log_prob if node.parent >= 0 else 0.0
        probability = math.exp(min(0.0, node.log_prob - before))
        middle = (x0 + x) / 2
        _add(
            links,
            "path",
            d=f"M{x0} {y0}C{middle} {y0} {middle} {y} {x} {y}",
            fill="none",
            stroke=MARKS[node.fate][0],
            stroke_width=f"{0.75 + 4 * probability:.2f}",
            stroke_opacity=f"{0.25 + 0.6 * probability:.2f}",
        )
        _mark(marks, node.fate, x, y)
        if node.rank >= 0:
            look = {"text_anchor": "middle", "fill": WHITE}
            _label(marks, str(node.rank + 1), x, y, font_size=10, **look)
        _piece(marks, node.piece, x, y)
    width, height = (max(axis) + START for axis in zip(*places, strict=True))
    x = START
    for fate in Fate:
        _mark(svg, fate, x, height)
        _label(svg, fate.value, x + 14, height)
        x += 34 + round(width_of(fate.value))
    return _finished(svg, max(width, x), height + LEVEL / 2)


def width_of(word: str) -> float:
    """Guess a word's width in pixels, if anything too wide."""
    ems = sum(
        1.0 if unicodedata.east_asian_width(character) in "WF" else 0.62
        for character in word
    )
    return ems * FONT


def _picture(title: str) -> ElementTree.Element:
    """Begin a picture on white, since any page may show it."""
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "font-family": "system-ui, sans-serif",
            "font-size": str(FONT),
        },
    )
    _add(svg, "title", title)
    _add(svg, "rect", width="100%", height="100%", fill=WHITE)
    return svg


def _finished(svg: ElementTree.Element, width: float, height: float) -> str:
    svg.set("width", f"{width:.0f}")
    svg.set("height", f"{height:.0f}")
    svg.set("viewBox", f"0 0 {width:.0f} {height:.0f}")
    return ElementTree.tostring(svg, "unicode") + "\n"


def _add(
    parent: ElementTree.Element,
    tag: str,
    text: str = "",
    **attributes: Any,
) -> ElementTree.Element:
    """Add an element; `stroke_width` is `stroke-width`."""
    element = ElementTree.SubElement(parent, tag)
    element.text = _FORBIDDEN.sub("\ufffd", text)
    for name, value in attributes.items():
        written = value if isinstance(value, str) else f"{value:g}"
        element.set(name.replace("_", "-"), written)
    return element


def _label(
    parent: ElementTree.Element,
    text: str,
    x: float,
    y: float,
    **attributes: Any,
) -> None:
    """Write a text with its middle at the height `y`."""
    look = {"dominant_baseline": "central", "fill": INK} | attributes
    _add(parent, "text", text, x=x, y=y, **look)


def _piece(parent: ElementTree.Element, piece: str, x: float, y: float) -> None:
    """Write a piece above its mark."""
    shown = piece if len(piece) <= LONGEST else f"{piece[: LONGEST - 1]}…"
    look = {"text_anchor": "middle", "dominant_baseline": "auto"}
    _label(parent, shown, x, y - 13, **look)


def _mark(parent: ElementTree.Element, fate: Fate, x: float, y: float) -> None:
    colour, inside, shape = MARKS[fate]
    look = {"transform": f"translate({x:g} {y:g})", "stroke": colour}
    _add(parent, "path", d=shape, fill=inside, stroke_width=2, **look)
