"""Draws attention as lines between words, as in figures 3 to 5 of the paper.

Axes: Q pieces that attend, K pieces that are attended to.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.viewing import svg

ROW = 20  # Height of a piece, in pixels.
GAP = 240  # Between the two columns.
EDGE = 12
# No line is drawn for less, as in the page's `lines.js`; a row has 100 stronger
# ones at most.
FAINTEST = 0.01


class Head(NamedTuple):
    """A head, drawn in the colour of its number.

    Attributes:
        number: From 0; None for the mean of all heads.
        weights: float32 `(Q, K)`.
    """

    number: int | None
    weights: np.ndarray

    @property
    def name(self) -> str:
        """The head's name in the legend and in the titles of its lines."""
        if self.number is None:
            return "mean of all heads"
        return f"head {self.number + 1}"

    @property
    def colour(self) -> str:
        """The colour of its number, whichever others are drawn."""
        if self.number is None:
            return svg.DIM
        return svg.COLOURS[self.number % len(svg.COLOURS)]

    @property
    def dashes(self) -> str | None:
        """The dashes of a line: the ninth head has the first one's colour."""
        is_repeated = (self.number or 0) >= len(svg.COLOURS)
        return "5 3" if is_repeated else None


def picture(
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Sequence[Head],
    row: int | None = None,
) -> str:
    """Draw the lines of some heads.

    Args:
        queries: Q pieces, on the left.
        keys: K pieces, on the right.
        heads: Heads with weights `(Q, K)`, those behind first.
        row: The only one of the Q pieces to draw lines from; by default all.

    Returns:
        The text of an SVG file. A line's opacity is its weight, and its title
        says the weight.
    """
    left = EDGE + max(map(svg.width_of, queries), default=0.0)
    right = left + GAP
    width = right + max(map(svg.width_of, keys), default=0.0) + EDGE
    top = EDGE + ROW
    height = top + ROW * max(len(queries), len(keys)) + EDGE
    parts = []
    for place, head in enumerate(heads):
        # Draw them side by side, or the last would hide the others.
        shift = 2.0 * (place - (len(heads) - 1) / 2)
        parts += [
            _line(
                head,
                (left + 6, _middle(top, i) + shift),
                (right - 6, _middle(top, j) + shift),
                float(head.weights[i, j]),
            )
            for i in (range(len(queries)) if row is None else [row])
            for j in range(len(keys))
            if head.weights[i, j] >= FAINTEST
        ]
    parts += _words(queries, left, top, "end", row)
    parts += _words(keys, right, top, "start", None)
    legend, legend_width = _legend(heads)
    width = max(width, legend_width)
    title = f"Attention from {len(queries)} to {len(keys)} pieces"
    return svg.document(width, height, title, [*parts, legend])


def _middle(top: float, place: int) -> float:
    return top + ROW * (place + 0.5)


def _line(
    head: Head,
    start: tuple[float, float],
    end: tuple[float, float],
    weight: float,
) -> str:
    return svg.element(
        "line",
        svg.element("title", f"{head.name}: {weight:.3f}"),
        x1=f"{start[0]:.1f}",
        y1=f"{start[1]:.1f}",
        x2=f"{end[0]:.1f}",
        y2=f"{end[1]:.1f}",
        stroke_width=2,
        stroke_opacity=f"{weight:.3f}",
        stroke=head.colour,
        stroke_dasharray=head.dashes,
    )


def _words(
    words: Sequence[str],
    x: float,
    top: float,
    anchor: str,
    row: int | None,
) -> list[str]:
    return [
        svg.label(
            word,
            f"{x:.1f}",
            f"{_middle(top, place):.1f}",
            text_anchor=anchor,
            fill=svg.INK if row in (None, place) else svg.DIM,
        )
        for place, word in enumerate(words)
    ]


def _legend(heads: Sequence[Head]) -> tuple[str, float]:
    """Draw the legend, a bar and a name for each head; return its width too."""
    parts, x = [], float(EDGE)
    for head in heads:
        # A path, unlike the lines between words.
        bar = svg.element(
            "path",
            d=f"M{x} {EDGE + 1}h18",
            stroke_width=6,
            stroke=head.colour,
            stroke_dasharray=head.dashes,
        )
        parts += [bar, svg.label(head.name, x + 23, EDGE + 1)]
        x += 23 + svg.width_of(head.name) + 10
    return svg.element("g", "".join(parts)), x
