"""Keeps token records on disk, so that no epoch waits for the tokenizer."""

import dataclasses
import itertools
import os
import pathlib
import weakref
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files

RECORDS_FILE = "records.json"
# Pairs tokenised at a time.
CHUNK = 8192
FILES = ("source.ids", "source.lengths", "target.ids", "target.lengths")


class _File:
    """Reads parts of a file; a mapped one would count as our memory."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, starts: np.ndarray, sizes: np.ndarray) -> bytes:
        """Read pieces, given in bytes, and join them."""
        places = zip(sizes.tolist(), starts.tolist(), strict=True)
        return b"".join(
            os.pread(self._descriptor, size, start) for size, start in places
        )


class Side(NamedTuple):
    """One language of a corpus, all sentences end to end.

    Attributes:
        ids: Integer array `(sum of lengths,)`, mapped if it is a file's.
        lengths: Integer array `(pairs,)`, tokens of each sentence.
        starts: Integer array `(pairs,)`, where each begins in `ids`.
        file: The file of `ids`, if there is one.
    """

    ids: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    file: _File | None = None

    @classmethod
    def load(cls, stem: pathlib.Path, dtype: str) -> "Side":
        lengths = np.fromfile(f"{stem}.lengths", np.int32)
        starts = np.cumsum(lengths, dtype=np.int64)
        starts -= lengths
        ids = np.asarray(np.memmap(f"{stem}.ids", dtype, mode="r"))
        return cls(ids, lengths, starts, _File(f"{stem}.ids"))

    def in_memory(self) -> "Side":
        """Copy what is needed into memory."""
        return self._replace(ids=np.array(self.ids), file=None)

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Gather sentences, PAD after each; a row of -1 is PAD throughout.

        Returns:
            int32 array `(len(rows), length)`.
        """
        columns = np.arange(length)
        starts = self.starts[rows]
        lengths = np.where(rows < 0, 0, self.lengths[rows])
        filled = columns < lengths[:, None]
        batch = np.full(filled.shape, config.PAD_ID, np.int32)
        if self.file is None:
            batch[filled] = self.ids[(starts[:, None] + columns)[filled]]
        else:
            size = self.ids.itemsize
            found = self.file.read(starts * size, filled.sum(axis=1) * size)
            batch[filled] = np.frombuffer(found, self.ids.dtype)
        return batch


@dataclasses.dataclass(eq=False)
class TokenisedCorpus:
    """Aligned token records, so that no epoch waits for the tokenizer.

    Attributes:
        source: The source side.
        target: The target side.
        dropped: Pairs left out because a side had too many tokens.
        empty: Pairs left out because a side had no text.
    """

    source: Side
    target: Side
    dropped: int = 0
    empty: int = 0

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def source_lengths(self) -> np.ndarray:
        return self.source.lengths

    @property
    def target_lengths(self) -> np.ndarray:
        return self.target.lengths

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Return the tokens of source and target, including end tokens."""
        return (
            int(self.source_lengths.sum(dtype=np.int64)),
            int(self.target_lengths.sum(dtype=np.int64)),
        )

    def gather(
        self, rows: np.ndarray, source_length: int, target_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the two sides of a batch.

        Args:
            rows: Integer array `(B,)` of pairs, -1 for a row of padding.
            source_length: S.
            target_length: T.

        Returns:
            int32 arrays `(B, S)` and `(B, T)`, PAD after each sentence.
        """
        return (
            self.source.padded(rows, source_length),
            self.target.padded(rows, target_length),
        )

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        directory: str | os.PathLike,
        max_length: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "TokenisedCorpus":
        """Tokenise `pairs` into a folder, whole or not at all.

        Args:
            pairs: Source and target texts.
            tokenizer: Vocabulary of both sides.
            directory: Folder for the records; it may hold others, which are
                replaced.
            max_length: Pairs with a longer side, or with a side without
                text, are dropped and counted. `None` keeps every pair.
            progress: Called with the number of pairs read so far.

        Raises:
            UserError: If no pair is left, or `directory` holds something
                other than records.
        """
        directory = pathlib.Path(directory)
        # Records without their header are ours too.
        found = {path.name for path in directory.glob("*")}
        is_other = directory.is_file() or found - {*FILES}
        if is_other and RECORDS_FILE not in found:
            raise config.UserError(
                f"Expected a free place for token records in {directory}, "
                "found other files; remove or rename what is there."
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
        dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
        with files.whole(directory) as partial:
            partial.mkdir()
            made = _Written(partial, dtype, max_length)
            rest = iter(pairs)
            while chunk := list(itertools.islice(rest, CHUNK)):
                made.append(chunk, tokenizer)
                if progress is not None:
                    progress(made.read)
            if not made.kept:
                limit = (
                    f" and at most {max_length} tokens" if max_length else ""
                )
                raise config.UserError(
                    "Expected at least one pair of sentences to keep, received "
                    f"{made.read}, none with text{limit} on both sides; check "
                    f"the corpus{' or raise the maximum length' * bool(limit)}."
                )
            made.write_header()
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "TokenisedCorpus":
        """Open the records that `build` wrote.

        Raises:
            UserError: If `directory` holds none, or not as they were written.
        """
        directory = pathlib.Path(directory)
        try:
            header = files.from_json((directory / RECORDS_FILE).read_text())
            for name, known in header["checksums"].items():
                if files.checksum(directory / name) != known:
                    raise ValueError(f"{name} has another checksum")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise config.UserError(
                f"Expected token records in {directory}, found none or not as "
                f"they were written ({error}); restore or remove them."
            ) from None
        return cls(
            Side.load(directory / "source", header["dtype"]),
            Side.load(directory / "target", header["dtype"]),
            header["dropped"],
            header["empty"],
        )

    def in_memory(self) -> "TokenisedCorpus":
        """Copy what is needed into memory."""
        return dataclasses.replace(
            self,
            source=self.source.in_memory(),
            target=self.target.in_memory(),
        )


class _Written:
    """Records that grow in a folder."""

    def __init__(
        self, folder: pathlib.Path, dtype: str, max_length: int | None
    ) -> None:
        self.folder, self.dtype, self.max_length = folder, dtype, max_length
        for name in FILES:
            (folder / name).touch()
        self.checksums = dict.fromkeys(FILES, 0)
        self.read = self.kept = self.empty = 0  # Pairs.

    def append(
        self, chunk: Sequence[tuple[str, str]], tokenizer: Tokenizer
    ) -> None:
        sources, targets = zip(*chunk, strict=True)
        sides = [
            tokenizer.tokenize_many(sources),
            tokenizer.target.tokenize_many(targets),
        ]
        lengths = np.stack([of_side for _, of_side in sides])
        keep = np.ones(len(chunk), bool)
        if self.max_length is not None:
            # A side without text has only the end token.
            blank = (lengths == 1).any(axis=0)
            keep = ~blank & (lengths <= self.max_length).all(axis=0)
            self.empty += int(blank.sum())
        for side, (ids, of_side) in zip(
            ("source", "target"), sides, strict=True
        ):
            kept_ids = ids[np.repeat(keep, of_side)].astype(self.dtype)
            self._write(f"{side}.ids", kept_ids)
            self._write(f"{side}.lengths", of_side[keep].astype(np.int32))
        self.read += len(chunk)
        self.kept += int(keep.sum())

    def _write(self, name: str, values: np.ndarray) -> None:
        data = values.tobytes()
        with open(self.folder / name, "ab") as file:
            file.write(data)
        self.checksums[name] = zlib.crc32(data, self.checksums[name])

    def write_header(self) -> None:
        header = {
            "dtype": self.dtype,
            "dropped": self.read - self.kept - self.empty,
            "empty": self.empty,
            "checksums": self.checksums,
        }
        (self.folder / RECORDS_FILE).write_text(files.to_json(header))
