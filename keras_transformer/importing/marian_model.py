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
    """List their pieces in the order of our ids, with our padding and begin.

    Args:
        ids: Their ids, by the name of the piece.
        what: The file, for the error if it lacks the unknown or end token.
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
    """Refuse a tied matrix without exactly one row for each piece."""
    if sorted(ids.values()) != list(range(len(table))):
        raise UserError(
            f"The embedding has {len(table)} rows, but {what} has {len(ids)} "
            "pieces, or two of one id; download the files of one model."
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
    ours[BOS_ID], logits_bias[BOS_ID] = start, NEVER
    return {
        "embedding/table": ours[:, column_order(positions, table.shape[1])],
        "embedding/bias": logits_bias,
    }


def tokenizer(folder: pathlib.Path, pieces: Sequence[str]) -> PairedTokenizer:
    """Join the folder's two sentencepiece models over the pieces.

    Raises:
        UserError: If they are missing, or merges of subword-nmt are there.
    """
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
