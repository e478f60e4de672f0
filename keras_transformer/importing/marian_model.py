"""Converts a Marian model to our names, from either kind of file.

It differs from ours in these points:

- Sines come before cosines. If ours alternate, as in the paper, all columns of
  width D are put in our order.
- Keys and values have biases: `imported.attention` folds them.
- The decoder starts from a zero embedding, or from that of padding: it becomes
  the row of our begin token.
- Ids differ: rows of the tied matrix are put in our order.
- Padding and begin token, which are never written, get a logit so low that
  they have no share of a probability.

Axes: D model width, V pieces of ours, R rows of theirs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.importing.imported import (
    NEVER,
    attention,
    interleaved,
)

END, UNKNOWN, PADDING, BEGIN = "</s>", "<unk>", "<pad>", "<s>"


class Linear(NamedTuple):
    """A projection.

    Attributes:
        kernel: `(in, out)`.
        bias: `(out,)`.
    """

    kernel: np.ndarray
    bias: np.ndarray


class Norm(NamedTuple):
    """Gain and bias of a layer normalisation, each `(D,)`."""

    gain: np.ndarray
    bias: np.ndarray


class Sublayer(NamedTuple):
    """Projections of a sub-layer and the norm behind it.

    Attributes:
        linears: Query, key, value and output, or both of feed-forward.
        norm: The norm.
    """

    linears: Sequence[Linear]
    norm: Norm


class Arrays:
    """The arrays of a file by their names; all of them must be used.

    Args:
        arrays: By their names.
        what: The file, for the error.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], what: str) -> None:
        self._arrays = arrays
        self._what = what
        self._left = set(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._arrays[name]
        self._left.discard(name)
        return array

    def check_all_taken(self) -> None:
        """Refuse a model with arrays that ours has no use for.

        Raises:
            UserError: If there is one; it names an array.
        """
        if self._left:
            raise UserError(
                f"{self._what} cannot be imported exactly: it has "
                f"{min(self._left)}, which has no place in a Transformer of "
                "its settings; give the settings that came with the weights."
            )


def vocabulary(ids: Mapping[str, int], what: str) -> list[str]:
    """List their pieces in the order of our ids, with our padding and begin.

    Args:
        ids: Their ids, by the name of the piece.
        what: The file, for the error.

    Raises:
        UserError: If there is no unknown or end token.
    """
    for piece in (UNKNOWN, END):
        if piece not in ids:
            raise UserError(
                f"Expected the piece {piece} in {what}, found none."
            )
    special = (PADDING, UNKNOWN, BEGIN, END)
    others = sorted(set(ids) - set(special), key=ids.__getitem__)
    return [*special, *others]


def check_rows(ids: Mapping[str, int], table: np.ndarray, what: str) -> None:
    """Refuse a tied matrix whose rows do not match the pieces.

    Raises:
        UserError: If a piece has no row or a row no piece.
    """
    if sorted(ids.values()) != list(range(len(table))):
        raise UserError(
            f"Expected a piece for each of the {len(table)} rows of the "
            f"embedding, found {len(ids)} pieces in {what}, or two of one id; "
            "download the files of one model."
        )


def embedding(
    table: np.ndarray,
    bias: np.ndarray,
    rows: Sequence[int | None],
    start: np.ndarray,
    positions: str,
) -> dict[str, np.ndarray]:
    """Return the tied matrix and the bias of the logits.

    Args:
        table: `(R, D)`.
        bias: `(R,)`.
        rows: For each of our ids their row, None for zeros that are never
            written; that of the begin token is ignored.
        start: The embedding that the decoder starts from, `(D,)`.
        positions: As in `ModelConfig`.
    """
    known = [row is not None for row in rows]
    places = [row or 0 for row in rows]
    ours = np.where(np.array(known)[:, None], table[places], 0.0)
    logits_bias = np.where(known, bias[places], NEVER)
    ours[2], logits_bias[2] = start, NEVER
    return {
        "embedding/table": ours[:, _order(positions, table.shape[1])],
        "embedding/bias": logits_bias,
    }


def layer(
    name: str,
    attentions: Mapping[str, Sublayer],
    feed_forward: Sublayer,
    positions: str,
) -> dict[str, np.ndarray]:
    """Make the weights of an encoder or decoder layer.

    Args:
        name: Our name, such as `encoder/layer_0`.
        attentions: The attentions, by our names.
        feed_forward: Swish or ReLU between its two projections.
        positions: As in `ModelConfig`.
    """
    order = _order(positions, feed_forward.norm.gain.shape[0])
    found: dict[str, np.ndarray] = {}
    for kind, sublayer in attentions.items():
        query, key, value, output = sublayer.linears
        weights = attention(
            Linear(query.kernel[order], query.bias),
            Linear(key.kernel[order], key.bias),
            Linear(value.kernel[order], value.bias),
            Linear(output.kernel[:, order], output.bias[order]),
        )
        found |= {f"{kind}/{which}": a for which, a in weights.items()}
        found |= _norm(kind, sublayer.norm, order)
    widen, narrow = feed_forward.linears
    found |= {
        "feed_forward/widen/kernel": widen.kernel[order],
        "feed_forward/widen/bias": widen.bias,
        "feed_forward/narrow/kernel": narrow.kernel[:, order],
        "feed_forward/narrow/bias": narrow.bias[order],
    }
    found |= _norm("feed_forward", feed_forward.norm, order)
    return {f"{name}/{which}": array for which, array in found.items()}


def _order(positions: str, d_model: int) -> np.ndarray:
    """Find their column for each of ours, `(D,)`."""
    if positions == "sinusoidal":
        return interleaved(d_model)
    return np.arange(d_model)


def _norm(name: str, norm: Norm, order: np.ndarray) -> dict[str, np.ndarray]:
    return {
        f"{name}_norm/gamma": norm.gain[order],
        f"{name}_norm/beta": norm.bias[order],
    }
