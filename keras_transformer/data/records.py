"""Token records on disk, so that no epoch waits for the tokenizer."""

import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer import config, files
from keras_transformer.data.tokenizer import Tokenizer

# Pairs tokenised at a time.
CHUNK = 8192
RECORDS_FILE = "records.json"


class Side(NamedTuple):
    """One language of a corpus, all sentences end to end.

    Attributes:
        ids: Integer array `(sum of lengths,)`, perhaps mapped from a file.
        lengths: Integer array `(pairs,)`, tokens of each sentence.
        starts: Integer array `(pairs,)`, where each begins in `ids`.
    """

    ids: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray

    @classmethod
    def load(cls, stem: pathlib.Path, dtype: str) -> "Side":
        lengths = np.fromfile(f"{stem}.lengths", np.int32)
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        ids = np.asarray(np.memmap(f"{stem}.ids", dtype, mode="r"))
        return cls(ids, lengths, starts)

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Gather sentences, PAD after each; a row of -1 is PAD throughout.

        Returns:
            int32 array `(len(rows), length)`.
        """
        columns = np.arange(length)
        lengths = np.where(rows < 0, 0, self.lengths[rows])
        filled = columns < lengths[:, None]
        batch = np.full(filled.shape, config.PAD_ID, np.int32)
        batch[filled] = self.ids[(self.starts[rows][:, None] + columns)[filled]]
        return batch


class TokenisedCorpus:
    """Aligned token records, so that no epoch waits for the tokenizer.

    Attributes:
        source: The source side.
        target: The target side.
        dropped: Pairs left out because a side had too many tokens.
        empty: Pairs left out because a side had no text.
    """

    def __init__(
        self, source: Side, target: Side, dropped: int = 0, empty: int = 0
    ) -> None:
        self.source = source
        self.target = target
        self.dropped = dropped
        self.empty = empty

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def source_lengths(self) -> np.ndarray:
        return self.source.lengths

    @property
    def target_lengths(self) -> np.ndarray:
        return self.target.lengths

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        directory: str | os.PathLike,
        max_length: int | None = None,
        fingerprint: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> "TokenisedCorpus":
        """Tokenise `pairs` into `directory`, or reuse what is there.

        Args:
            pairs: Source and target texts; not touched on reuse.
            tokenizer: Vocabulary of both sides.
            directory: Where the records go.
            max_length: Pairs with a longer side, or with a side without
                text, are dropped and counted. `None` keeps every pair.
            fingerprint: Names the text and the vocabulary. Records with the
                same fingerprint and `max_length` are reused, others replaced.
            progress: Called with the number of pairs read so far.

        Raises:
            UserError: If no pair is left, or `directory` holds something
                other than records.
        """
        directory = pathlib.Path(directory)
        key = {"fingerprint": fingerprint, "max_length": max_length}
        if directory.exists():
            found = _read_header(directory)
            if key.items() <= found.items() and _is_whole(directory, found):
                return cls.load(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(directory) as partial:
            partial.mkdir()
            header = _write_records(
                pairs, tokenizer, partial, max_length, progress
            )
            sizes = {p.name: p.stat().st_size for p in partial.iterdir()}
            header = {**key, **header, "sizes": sizes}
            (partial / RECORDS_FILE).write_text(json.dumps(header))
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "TokenisedCorpus":
        """Map the records that `build` wrote.

        Raises:
            UserError: If `directory` holds no records.
        """
        directory = pathlib.Path(directory)
        header = _read_header(directory)
        return cls(
            Side.load(directory / "source", header["dtype"]),
            Side.load(directory / "target", header["dtype"]),
            header["dropped"],
            header["empty"],
        )

    def in_memory(self) -> "TokenisedCorpus":
        """A copy that needs no files."""
        source, target = (
            side._replace(ids=np.array(side.ids))
            for side in (self.source, self.target)
        )
        return TokenisedCorpus(source, target, self.dropped, self.empty)


def _read_header(directory: pathlib.Path) -> dict:
    try:
        return dict(json.loads((directory / RECORDS_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        raise config.UserError(
            f"Expected token records in {directory}, found no readable "
            f"{RECORDS_FILE}; remove or rename what is there."
        ) from None


def _is_whole(directory: pathlib.Path, header: dict) -> bool:
    """Whether every file has the size it was written with."""
    return "sizes" in header and all(
        (directory / name).is_file()
        and (directory / name).stat().st_size == size
        for name, size in header["sizes"].items()
    )


def _write_records(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    max_length: int | None,
    progress: Callable[[int], None] | None,
) -> dict:
    """Write ids and lengths of both sides; returns what the header adds."""
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
    read = kept = empty = 0
    with (
        open(directory / "source.ids", "wb") as source_ids,
        open(directory / "source.lengths", "wb") as source_lengths,
        open(directory / "target.ids", "wb") as target_ids,
        open(directory / "target.lengths", "wb") as target_lengths,
    ):
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            source, target = map(tokenizer.tokenize, zip(*chunk, strict=True))
            lengths = np.stack([source.row_lengths(), target.row_lengths()])
            keep = np.ones(len(chunk), bool)
            if max_length is not None:
                # Without text there is the end token alone.
                blank = (lengths == 1).any(axis=0)
                keep = ~blank & (lengths <= max_length).all(axis=0)
                empty += int(blank.sum())
            _append(source, keep, dtype, source_ids, source_lengths)
            _append(target, keep, dtype, target_ids, target_lengths)
            read += len(chunk)
            kept += int(keep.sum())
            if progress is not None:
                progress(read)
    if not kept:
        raise config.UserError(
            "Expected at least one pair of sentences to keep, received "
            f"{read}, none with text and at most {max_length} tokens on both "
            "sides; check the corpus or raise the maximum length."
        )
    return {"dtype": dtype, "dropped": read - kept - empty, "empty": empty}


def _append(
    ragged: tf.RaggedTensor,
    keep: np.ndarray,
    dtype: str,
    ids: BinaryIO,
    lengths: BinaryIO,
) -> None:
    row_lengths = ragged.row_lengths().numpy()
    values = ragged.values.numpy()[np.repeat(keep, row_lengths)]
    values.astype(dtype).tofile(ids)
    row_lengths[keep].astype(np.int32).tofile(lengths)
