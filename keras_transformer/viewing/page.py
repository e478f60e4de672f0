"""Writes the page around an explanation: HTML that needs nothing else.

If scripts run, the script replaces the table and the picture by views.
Otherwise those stay.
"""

import base64
import html
import importlib.resources
from collections.abc import Sequence
from typing import Any

from keras_transformer.viewing import payload
from keras_transformer.viewing.hypotheses import Node

# The scripts, in the order in which they are joined.
SCRIPTS = (
    "data.js",
    "elements.js",
    "lines.js",
    "summary.js",
    "grid.js",
    "heat_map.js",
    "head.js",
    "steps.js",
    "tree.js",
    "figures.js",
    "viewer.js",
)
TRUNCATED = "The source was too long: only its beginning was translated."
COLUMNS = ("", "Translation", "Score", "Log-probability", "Tokens", "Ended by")


def table(
    translations: Sequence[str], leaves: Sequence[int], nodes: Sequence[Node]
) -> str:
    """Write the hypotheses returned; -1 is the leaf of an empty translation."""
    lines = []
    found = zip(translations, leaves, strict=True)
    for rank, (text, leaf) in enumerate(found, 1):
        score, log_prob, tokens, ends_with = 0.0, 0.0, 0, empty_end(nodes)
        if leaf >= 0:
            node = nodes[leaf]
            score, log_prob, tokens = node.score, node.log_prob, node.step + 1
            ends_with = node.ends_with
        cells = (
            str(rank),
            f'<bdi dir="auto">{html.escape(text)}</bdi>',
            f"{score:.4f}",
            f"{log_prob:.4f}",
            str(tokens),
            html.escape(ends_with),
        )
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr>{row}</tr>")
    heads = "".join(f"<th>{name}</th>" for name in COLUMNS)
    return (
        f"<table><thead><tr>{heads}</tr></thead>\n"
        f"<tbody>{''.join(lines)}</tbody></table>\n"
    )


def empty_end(nodes: Sequence[Node]) -> str:
    """Say why a search wrote nothing, or why none of it is left."""
    return "no hypothesis left" if nodes else "limit"


def script() -> str:
    """Join all JavaScript of the page, without leaving a global name."""
    # It has no indentation, since each viewer in a notebook holds a copy.
    files = importlib.resources.files(__package__) / "script"
    text = "".join(
        (files / name).read_text(encoding="utf-8") for name in SCRIPTS
    )
    lines = [line.lstrip() for line in text.splitlines()]
    return "\n".join(["(() => {", '"use strict";', *lines, "})();", ""])


def style() -> str:
    """Return the style sheet of the views."""
    files = importlib.resources.files(__package__)
    return (files / "viewer.css").read_text(encoding="utf-8")


def fragment(
    facts: dict[str, Any], weights: str, hypotheses: str, picture: str
) -> str:
    """Make the HTML that a notebook shows.

    One page may hold several, even the same one twice.

    Args:
        facts: The data that `data.js` reads, besides the weights.
        weights: The text of `payload.weights`.
        hypotheses: The text of `table`.
        picture: An SVG.
    """
    cut = TRUNCATED if facts["truncated"] else ""
    still = _still(facts["source"], cut, hypotheses, picture)
    data = payload.json_for_script({**facts, "cut": cut, "style": style()})
    return (
        '<div class="keras-transformer-viewer">\n'
        f"{still}"
        f'<script type="application/json">{data}</script>\n'
        f'<script type="text/plain">{weights}</script>\n'
        "</div>\n"
        f"{_script_element()}"
    )


def document(title: str, fragments: Sequence[str]) -> str:
    """Write a whole page of a title around fragments, which share a script."""
    common = _script_element()
    views = "".join(each.removesuffix(common) for each in fragments)
    return (
        "<!doctype html>\n"
        '<html lang="en">\n'
        "<head>\n"
        '<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        '<meta name="color-scheme" content="light dark">\n'
        # An icon of its own, or the browser asks the server for one.
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(_shortened(title))}: attention and beam search"
        "</title>\n"
        "</head>\n"
        # This class tells viewers that they may paint the whole page.
        '<body class="keras-transformer-page" style="margin: 0">\n'
        f"{views}{common}"
        "</body>\n"
        "</html>\n"
    )


def _script_element() -> str:
    return f"<script>\n{script()}</script>\n"


def _still(source: str, cut: str, hypotheses: str, picture: str) -> str:
    """Write the table and the picture that need no script."""
    title = html.escape(_shortened(source))
    image = base64.b64encode(picture.encode()).decode()
    return (
        '<div style="padding: 0 16px">\n'
        f'<h1 style="font-size: 20px"><bdi dir="auto">{title}</bdi></h1>\n'
        f'<p>Source: <bdi dir="auto">{html.escape(source)}</bdi></p>\n'
        f"{f'<p>{cut}</p>' if cut else ''}"
        f"{hypotheses}"
        '<p><img style="max-width: 100%" '
        'alt="What each piece of the best translation looked at: lines to the '
        'pieces of the source, the mean of all heads of cross-attention." '
        f'src="data:image/svg+xml;base64,{image}"></p>\n'
        "<p>Attention is not an explanation. With scripts allowed, all heads "
        "and the whole search are shown here.</p>\n"
        "</div>\n"
    )


def _shortened(text: str) -> str:
    text = text if len(text) <= 60 else f"{text[:59]}…"
    return text or "(empty)"
