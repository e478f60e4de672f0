"""Weights as a text that a page can hold: 8 bits each, deflated, base64.

The page's `data.js` reads what this file writes.

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
    """All weights and the entropy of each row.

    First the entropies of the three, then their weights, in this order and
    without anything between them.

    Args:
        encoder: float32 `(L, H, S, S)`.
        cross: float32 `(L, H, R, S)`.
        decoder: float32 `(L, H, R, T)`.

    Returns:
        Base64 of a zlib stream. Entropies are little-endian uint16 in
        thousandths of a bit, weights uint8 in 1/255: no weight is wrong by
        more than 1/510.
    """
    kinds = (encoder, cross, decoder)
    entropies = [np.rint(1_000 * entropy(kind)) for kind in kinds]
    parts = [array.astype("<u2").tobytes() for array in entropies]
    parts += [np.rint(255 * kind).astype("u1").tobytes() for kind in kinds]
    return base64.b64encode(zlib.compress(b"".join(parts))).decode()


def entropy(rows: np.ndarray) -> np.ndarray:
    """Entropy of each row in bits.

    Args:
        rows: `(..., N)`, of which each row sums to 1.

    Returns:
        float64 `(...)`, from 0 for one weight of 1 to log2 N.
    """
    rows = rows.astype("float64")
    # Below any weight that counts, and its logarithm is finite.
    logs = np.log2(np.maximum(rows, 1e-30))
    return np.maximum(-np.sum(rows * logs, axis=-1), 0.0)


def json_for_script(facts: Any) -> str:
    """JSON that may stand within a `<script>`, whatever its strings hold."""
    text = json.dumps(facts, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def nodes(found: Sequence[Node]) -> list[tuple[Any, ...]]:
    """The fields of each node, as `data.js` names them."""
    return [
        (*node[:3], number(node.log_prob), number(node.score), *node[5:])
        for node in found
    ]


def alternatives(
    found: Sequence[Sequence[Alternative]],
) -> list[list[tuple[str, float | None]]]:
    """The likeliest next pieces of each row."""
    return [
        [(piece, number(log_prob)) for piece, log_prob in row] for row in found
    ]


def number(value: float) -> float | None:
    """A number as JSON has it: rounded, None for an infinite one."""
    return round(float(value), 5) if math.isfinite(value) else None
