"""Packs weights as text for a page: 8 bits each, deflated, base64.

The page's `data.js` reads this text.

Axes: L layers, H heads.
"""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.viewing.hypotheses import Alternative, Node


def weights(encoder: np.ndarray, cross: np.ndarray, decoder: np.ndarray) -> str:
    """Pack all weights and the entropy of each row.

    The entropies of the three come first, then their weights, in this order
    and without gaps.

    Args:
        encoder: float32 `(L, H, S, S)`.
        cross: float32 `(L, H, R, S)`.
        decoder: float32 `(L, H, R, T)`.

    Returns:
        Base64 of a zlib stream. Entropies are little-endian uint16 in
        thousandths of a bit, weights uint8 in 1/255, so no weight is wrong by
        more than 1/510.
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
    """Write JSON that is safe within a `<script>`, whatever its strings."""
    text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def nodes(found: Sequence[Node]) -> list[tuple[Any, ...]]:
    """Return the fields of each node, as `data.js` names them."""
    return [
        (*node[:3], number(node.log_prob), number(node.score), *node[5:])
        for node in found
    ]


def alternatives(
    found: Sequence[Sequence[Alternative]],
) -> list[list[tuple[str, float | None]]]:
    """Return the likeliest next pieces of each row."""
    return [
        [(piece, number(log_prob)) for piece, log_prob in row] for row in found
    ]


def number(value: float) -> float | None:
    """Round a number for JSON; None for an infinite one."""
    return round(float(value), 5) if math.isfinite(value) else None
