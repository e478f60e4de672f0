"""Writes the viewer of an explanation: HTML that needs nothing else.

Where scripts run, views replace the texts. Weights are packed
as text, 8 bits each, deflated, base64, which `data.js` reads.

Axes: L layers, H heads, S source pieces, T target pieces, R rows.
"""

import base64
import hashlib
import html
import importlib.resources
import json
import math
import zlib
from typing import Any

import numpy as np

from keras_transformer.data.languages import language_of

# The scripts, in the order in which they are joined.
SCRIPTS = (
    *("data.js", "elements.js", "lines.js", "summary.js", "grid.js"),
    *("heat_map.js", "head.js", "steps.js", "tree.js"),
    *("figures.js", "viewer.js"),
)
# The beginning of a Content-Security-Policy: what a page may not do.
NOTHING = (
    "default-src 'none'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; "
)
TRUNCATED = "The source was too long: only its beginning was translated."


def side(language: str) -> dict[str, str]:
    """Make the attributes of HTML of texts in a language."""
    known = language_of(language)
    # It may begin with a number or a name; others tell their own direction.
    is_rtl = known.direction == "rtl"
    return {"lang": known.code, "dir": "rtl" if is_rtl else "auto"}


def _isolated(text: str, attributes: dict[str, str]) -> str:
    """Write a text whose direction does not touch what stands beside it."""
    said = "".join(f' {name}="{of}"' for name, of in attributes.items())
    return f"<bdi{said}>{html.escape(text)}</bdi>"


def script() -> str:
    """Join all JavaScript of the viewer, without leaving a global name."""
    text = "".join(_file(f"script/{name}") for name in SCRIPTS)
    # Without indentation and comments: each viewer in a notebook holds a copy.
    lines = [line.lstrip() for line in text.splitlines()]
    lines = [line for line in lines if not line.startswith("//")]
    return "\n".join(["(() => {", '"use strict";', *lines, "})();", ""])


def _file(name: str) -> str:
    folder = importlib.resources.files(__package__)
    return (folder / name).read_text(encoding="utf-8")


def fragment(facts: dict[str, Any], weights: str) -> str:
    """Make the HTML that a notebook shows, of what `data.js` and `pack` say."""
    cut = TRUNCATED if facts["truncated"] else ""
    data = json_for_script({**facts, "cut": cut, "style": _file("viewer.css")})
    return (
        '<div class="keras-transformer-viewer">\n'
        f"{_still(facts, cut)}"
        f'<script type="application/json">{data}</script>\n'
        f'<script type="text/plain">{weights}</script>\n'
        "</div>\n"
        f"{_script_element()}"
    )


def document(title: str, view: str) -> str:
    """Write a whole page of a title around a fragment."""
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
        f"{view}"
        "</body>\n"
        "</html>\n"
    )


def _script_element() -> str:
    return f"<script>\n{script()}</script>\n"


def policy() -> str:
    """Write a document's Content-Security-Policy: its own script alone."""
    text = _script_element().partition(">")[2].rpartition("</")[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        f"{NOTHING}script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:"
    )


def _still(facts: dict[str, Any], cut: str) -> str:
    """Write the source and the translations, which need no script."""
    source, written = facts["source"], facts["sourceSide"]
    translations = "".join(
        f"<li>{_isolated(text, facts['targetSide'])}</li>"
        for text in facts["translations"]
    )
    return (
        '<div style="padding: 0 16px">\n'
        '<h1 style="font-size: 20px">'
        f"{_isolated(_shortened(source), written)}</h1>\n"
        f"<p>Source: {_isolated(source, written)}</p>\n"
        f"{f'<p>{cut}</p>' if cut else ''}"
        f"<ol>{translations}</ol>\n"
        "<p>With scripts allowed, the attention of all heads and the whole "
        "search are shown here.</p>\n"
        "</div>\n"
    )


def _shortened(text: str) -> str:
    text = text if len(text) <= 60 else f"{text[:59]}…"
    return text or "(empty)"


def pack(encoder: np.ndarray, cross: np.ndarray, decoder: np.ndarray) -> str:
    """Pack all weights and the entropy of each row, as base64 of a zlib stream.

    The entropies of the three come first, then their weights, in this order
    and without gaps. Entropies are little-endian uint16 in thousandths of a
    bit, weights uint8 in 1/255, so no weight is wrong by more than 1/510.
    """
    kinds = (encoder, cross, decoder)
    entropies = [np.rint(1_000 * entropy(kind)) for kind in kinds]
    parts = [array.astype("<u2").tobytes() for array in entropies]
    parts += [np.rint(255 * kind).astype("u1").tobytes() for kind in kinds]
    return base64.b64encode(zlib.compress(b"".join(parts))).decode()


def entropy(rows: np.ndarray) -> np.ndarray:
    """Compute the entropy of rows `(..., N)` in bits, `(...)` in float64."""
    rows = rows.astype("float64")
    # This is below any weight that counts, and its logarithm is finite.
    logs = np.log2(np.maximum(rows, 1e-30))
    return np.maximum(-np.sum(rows * logs, axis=-1), 0.0)


def json_for_script(facts: Any) -> str:
    """Write JSON that is safe within a `<script>`, whatever its strings.

    Numbers are rounded, and infinite ones become null.
    """
    text = json.dumps(_rounded(facts), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _rounded(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _rounded(value) for name, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [_rounded(each) for each in facts]
    if isinstance(facts, float | np.floating):
        return round(float(facts), 5) if math.isfinite(facts) else None
    return facts
