"""Draws figure 1 of the paper with the shapes on its arrows.

    python pictures/architecture.py

writes architecture.svg beside this file. The numbers in the boxes are sections.
Axes: B batch, S source length, T target length, V vocabulary; d_model is 512
in `base`.
"""

import pathlib
from html import escape

WIDTH, TOP, BOTTOM = 900, 180, 1_010
LEFT, RIGHT = 230, 650  # The middles of encoder and decoder.
BOX = 250, 46
BLUE, GREEN, ORANGE, VIOLET, GREY = (
    *("#cfe3ff", "#d3f0d8", "#ffe3bf"),
    *("#e6dafa", "#ececec"),
)
STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1b1b1b; text-anchor: middle }
.small { font-size: 12.5px; fill: #444 }
.shape { font: 13px ui-monospace, monospace; fill: #444; text-anchor: start }
.line { fill: none; stroke: #555; stroke-width: 1.6 }
.box { stroke: #555; stroke-width: 1.2 }
.frame { fill: none; stroke: #888; stroke-dasharray: 6 5; stroke-width: 1.4 }
"""


class Drawing:
    """An SVG that grows, box by box."""

    def __init__(self) -> None:
        self.parts = [
            f'<rect width="{WIDTH}" height="{BOTTOM}" fill="#ffffff"/>'
        ]

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Write words."""
        self.parts.append(
            f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'
        )

    def box(self, x: int, y: int, words: str, small: str, color: str) -> None:
        """Draw a box around its middle."""
        width, height = BOX
        self.parts.append(
            f'<rect class="box" x="{x - width / 2}" y="{y - height / 2}" '
            f'width="{width}" height="{height}" rx="9" fill="{color}"/>'
        )
        self.text(x, y - 3, words)
        self.text(x, y + 15, small, "small")

    def line(self, *points: tuple[float, float], shape: str = "") -> None:
        """Draw an arrow along points, with a shape beside its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline class="line" points="{path}" marker-end="url(#end)"/>'
        )
        if shape:
            (x, start), (_, end) = points[-2:]
            self.text(x + 9, (start + end) / 2 + 5, shape, "shape")

    def frame(self, x: int, top: int, bottom: int, words: str) -> None:
        """Draw what is repeated."""
        self.parts.append(
            f'<rect class="frame" x="{x - 178}" y="{top}" width="356" '
            f'height="{bottom - top}" rx="14"/>'
        )
        self.text(x + 152, top + 24, words)

    def svg(self) -> str:
        """All of it."""
        marker = (
            '<marker id="end" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#555"/></marker>'
        )
        inside = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 {TOP} {WIDTH} {BOTTOM - TOP}" width="{WIDTH}">\n'
            "<title>The Transformer, with shapes</title>\n"
            f"<style>{STYLE}</style>\n<defs>{marker}</defs>\n{inside}\n</svg>\n"
        )


def sublayer(
    drawing: Drawing, x: int, y: int, words: str, small: str, color: str
) -> None:
    """Draw a sub-layer, and above it the sum with what went in, normed."""
    half = BOX[1] / 2
    drawing.box(x, y, words, small, color)
    drawing.box(x, y - 72, "Dropout, add, norm", "3.1, 5.4", GREY)
    drawing.line((x, y - half), (x, y - 72 + half))
    # Past the sub-layer, as the paper draws it.
    side = x - BOX[0] / 2 - 22
    below = y + half + 17
    edge = x - BOX[0] / 2
    drawing.line((x, below), (side, below), (side, y - 72), (edge, y - 72))


def stack(
    drawing: Drawing,
    x: int,
    bottom: int,
    layers: list[tuple[str, str, str]],
    shape: str,
) -> int:
    """Draw sub-layers from the bottom up; returns where the next thing goes."""
    y = bottom
    for number, (words, small, color) in enumerate(layers):
        # The first comes from the positions, below the frame.
        start = y + BOX[1] / 2 + (36 if number else 61)
        drawing.text(x + 9, start - 6, shape, "shape")
        drawing.line((x, start), (x, y + BOX[1] / 2))
        sublayer(drawing, x, y, words, small, color)
        y -= 72 + BOX[1] + 36
    return y


def draw() -> str:
    """The whole figure."""
    drawing = Drawing()
    half = BOX[1] / 2
    for x, ids, shape, embedded in (
        (LEFT, "source ids", "int32 (B, S)", "(B, S, d_model)"),
        (RIGHT, "target ids, shifted right", "int32 (B, T)", "(B, T, d_model)"),
    ):
        drawing.text(x, 995, ids)
        drawing.line((x, 978), (x, 938), shape=shape)
        drawing.box(x, 915, "Embedding × √d_model", "3.4, one table", ORANGE)
        drawing.line((x, 892), (x, 866), shape=embedded)
        drawing.box(x, 843, "+ positions, dropout", "3.5, 5.4", ORANGE)

    attention = "Self-attention, h heads", "3.2, padding masked", BLUE
    feed_forward = "Feed-forward, d_ff inside", "3.3", GREEN
    encoded = stack(
        drawing, LEFT, 736, [attention, feed_forward], "(B, S, d_model)"
    )
    masked = "Self-attention, h heads", "3.2, only earlier positions", BLUE
    cross = "Attention to the source", "3.2.3, keys and values: memory", VIOLET
    decoded = stack(
        drawing, RIGHT, 736, [masked, cross, feed_forward], "(B, T, d_model)"
    )
    drawing.frame(LEFT, encoded + BOX[1], 797, "N ×")
    drawing.frame(RIGHT, decoded + BOX[1], 797, "N ×")

    # The memory goes to every layer of the decoder.
    top = encoded + 154 - 72 - half
    into = 736 - 154
    drawing.line(
        (LEFT, top),
        (LEFT, top - 40),
        (440, top - 40),
        (440, into),
        (RIGHT - BOX[0] / 2, into),
    )
    drawing.text(LEFT + 12, top - 48, "memory (B, S, d_model)", "shape")

    out = decoded + 154 - 72 - half
    drawing.line((RIGHT, out), (RIGHT, out - 44), shape="(B, T, d_model)")
    drawing.box(
        RIGHT, int(out - 44 - half), "× the table's transpose", "3.4", ORANGE
    )
    drawing.line(
        (RIGHT, out - 44 - 2 * half),
        (RIGHT, out - 84 - 2 * half),
        shape="float32 (B, T, V)",
    )
    drawing.text(RIGHT, out - 92 - 2 * half, "logits of the next piece")
    return drawing.svg()


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("architecture.svg")
    path.write_text(draw(), "utf-8")
