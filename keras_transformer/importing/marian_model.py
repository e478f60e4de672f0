"""Converts a Marian model to our names, from either kind of file.

It differs from ours in these points, besides those of `imported`:

- The decoder starts from a zero embedding, or from that of padding: it becomes
  the row of our begin token.
- Ids differ: rows of the tied matrix are put in our order.
- Padding and begin token, which are never written, get a logit so low that
  they have no share of a probability.

Axes: D model width, V pieces of ours, R rows of theirs.
"""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.config import BOS_ID, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing.imported import NEVER, column_order
from keras_transformer.importing.source_files import read_sentencepiece

END, UNKNOWN, PADDING, BEGIN = "</s>", "<unk>", "<pad>", "<s>"


def vocabulary(ids: Mapping[str, int], what: str) -> list[str]:
    """List their pieces in the order of our ids, with our padding and begin."""
    for piece in (UNKNOWN, END):
        if piece not in ids:
            raise UserError(
                f"Expected the piece {piece} in {what}, found none."
            )
    special = (PADDING, UNKNOWN, BEGIN, END)
    others = sorted(set(ids) - set(special), key=ids.__getitem__)
    return [*special, *others]


def embedding(
    table: np.ndarray,
    bias: np.ndarray,
    ids: Mapping[str, int],
    pieces: Sequence[str],
    start: np.ndarray,
    positions: str,
) -> dict[str, np.ndarray]:
    """Return the tied matrix and the bias of the logits.

    Args:
        table: `(R, D)`.
        bias: `(R,)`.
        ids: Their ids, each a row, by the name of the piece.
        pieces: V pieces; those that they lack become zeros, never written.
        start: The embedding that the decoder starts from, `(D,)`.
        positions: As in `ModelConfig`.
    """
    if sorted(ids.values()) != list(range(len(table))):
        raise UserError(
            f"The embedding has {len(table)} rows, the vocabulary {len(ids)} "
            "pieces, or two of one id; download the files of one model."
        )
    known = [piece in ids for piece in pieces]
    places = [ids.get(piece, 0) for piece in pieces]
    ours = np.where(np.array(known)[:, None], table[places], 0.0)
    logits_bias = np.where(known, bias[places], NEVER)
    ours[BOS_ID], logits_bias[BOS_ID] = start, NEVER
    return {
        "embedding/table": ours[:, column_order(positions, table.shape[1])],
        "embedding/bias": logits_bias,
    }


def tokenizer(folder: pathlib.Path, pieces: Sequence[str]) -> PairedTokenizer:
    """Join the folder's two sentencepiece models over the pieces."""
    source, target = folder / "source.spm", folder / "target.spm"
    merges = source.with_suffix(".bpe")
    if merges.exists() and not source.exists():
        raise UserError(
            f"{folder} cannot be imported: its texts are segmented by "
            f"subword-nmt ({merges.name}), which is not supported; take a "
            f"release with {source.name} and {target.name}."
        )
    models = read_sentencepiece(source), read_sentencepiece(target)
    return PairedTokenizer(pack(*models, pieces))
