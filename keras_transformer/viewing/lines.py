"""Lines between words, as figures 3 to 5 of the paper draw attention.

Axes: Q pieces that attend, K pieces that are attended to.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.viewing import svg

ROW = 20  # Height of a piece, in pixels.
GAP = 240  # Between the two columns.
EDGE = 12
# A fainter line is not seen; a row has 50 stronger ones at most.
FAINTEST = 0.02


def picture(
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Mapping[str, np.ndarray],
    rows: Sequence[int] | None = None,
) -> str:
    """Draw the lines of some heads.

    Args:
        queries: Q pieces, on the left.
        keys: K pieces, on the right.
        heads: By the name of each, float32 `(Q, K)`.
        rows: Only from these of the Q pieces; by default from all.

    Returns:
        The text of an SVG file. A line has the opacity of its weight, which
        its title says.
    """
    left = EDGE + max(map(svg.width_of, queries), default=0.0)
    right = left + GAP
    width = right + max(map(svg.width_of, keys), default=0.0) + EDGE
    top = EDGE + (ROW if len(heads) > 1 else 0)
    height = top + ROW * max(len(queries), len(keys)) + EDGE
    parts = []
    for number, (name, weights) in enumerate(heads.items()):
        # Side by side, or the last would hide the others.
        shift = 2.0 * (number - (len(heads) - 1) / 2)
        parts += [
            _line(
                f"{name}: {weights[i, j]:.3f}",
                (left + 6, _middle(top, i) + shift),
                (right - 6, _middle(top, j) + shift),
                svg.COLOURS[number % len(svg.COLOURS)],
                float(weights[i, j]),
            )
            for i in (range(len(queries)) if rows is None else rows)
            for j in range(len(keys))
            if weights[i, j] >= FAINTEST
        ]
    parts += _words(queries, left, top, "end", rows)
    parts += _words(keys, right, top, "start", None)
    if len(heads) > 1:
        names, names_width = _legend(list(heads))
        parts.append(names)
        width = max(width, names_width)
    title = f"Attention from {len(queries)} to {len(keys)} pieces"
    return svg.document(width, height, title, parts)


def _middle(top: float, place: int) -> float:
    return top + ROW * (place + 0.5)


def _line(
    title: str,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    weight: float,
) -> str:
    return svg.element(
        "line",
        svg.element("title", svg.text(title)),
        x1=f"{start[0]:.1f}",
        y1=f"{start[1]:.1f}",
        x2=f"{end[0]:.1f}",
        y2=f"{end[1]:.1f}",
        stroke=colour,
        stroke_width=2,
        stroke_opacity=f"{weight:.3f}",
    )


def _words(
    words: Sequence[str],
    x: float,
    top: float,
    anchor: str,
    rows: Sequence[int] | None,
) -> list[str]:
    return [
        svg.element(
            "text",
            svg.text(word),
            x=f"{x:.1f}",
            y=f"{_middle(top, place):.1f}",
            text_anchor=anchor,
            dominant_baseline="central",
            fill=svg.INK if rows is None or place in rows else svg.DIM,
        )
        for place, word in enumerate(words)
    ]


def _legend(names: Sequence[str]) -> tuple[str, float]:
    """A square of its colour and its name for each head, and their width."""
    parts, x = [], float(EDGE)
    for number, name in enumerate(names):
        colour = svg.COLOURS[number % len(svg.COLOURS)]
        parts.append(
            svg.element(
                "rect", x=x, y=EDGE - 4, width=10, height=10, fill=colour
            )
        )
        parts.append(
            svg.element(
                "text",
                svg.text(name),
                x=x + 14,
                y=EDGE + 1,
                dominant_baseline="central",
                fill=svg.INK,
            )
        )
        x += 14 + svg.width_of(name) + 10
    return svg.element("g", "".join(parts)), x
