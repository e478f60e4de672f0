"""Writes elements of an SVG as text, and guesses the width of words."""

import re
import unicodedata
from html import escape

FONT = 13  # The size of all text, in pixels.
INK = "#1b1f24"
DIM = "#6a737d"
# Okabe and Ito's colours, which colour-blind people can tell apart. They mark
# heads, as in the page's `elements.js`.
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#000000",
)
# Characters that XML cannot hold, escaped or not.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def document(width: float, height: float, title: str, parts: list[str]) -> str:
    """Write a whole file, on white, since any page may show it.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        title: The title for screen readers.
        parts: Elements, those behind first.
    """
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT}">\n'
        f"<title>{text(title)}</title>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def element(tag: str, content: str = "", **attributes: object) -> str:
    """Write an element around SVG text; `stroke_width` is `stroke-width`.

    An attribute that is None is left out.
    """
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{pairs}>{content}</{tag}>" if content else f"<{tag}{pairs}/>"


def text(characters: str) -> str:
    """Escape characters as the content of an element."""
    return escape(_FORBIDDEN.sub("\ufffd", characters))


def label(characters: str, x: object, y: object, **attributes: object) -> str:
    """Write characters with their middle at the height `y`."""
    defaults = {"dominant_baseline": "central", "fill": INK}
    return element(
        "text", text(characters), x=x, y=y, **{**defaults, **attributes}
    )


def width_of(word: str) -> float:
    """Guess a word's width in pixels, if anything too wide."""
    ems = sum(
        1.0 if unicodedata.east_asian_width(character) in "WF" else 0.62
        for character in word
    )
    return ems * FONT
