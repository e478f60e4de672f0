"""Keeps token records on disk, so that no epoch waits for the tokenizer.

Files only grow while they are written. At intervals they are flushed to disk,
and a journal notes how far they are good. After a kill the next process cuts
off the rest, and loses only minutes.
"""

import dataclasses
import itertools
import os
import pathlib
import shutil
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files

RECORDS_FILE = "records.json"
# Pairs tokenised at a time.
CHUNK = 8192
# Chunks between two notes in the journal.
CHUNKS_NOTED = 128
JOURNAL = "journal.json"
FILES = ("source.ids", "source.lengths", "target.ids", "target.lengths")


class _File:
    """Reads parts of a file without mapping it.

    More and more of a mapped file would count as this process's memory.
    """

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
        self,
        rows: np.ndarray,
        source_length: int,
        target_length: int,
        number: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the two sides of a batch.

        Args:
            rows: Integer array `(B,)` of pairs, -1 for a row of padding.
            source_length: S.
            target_length: T.
            number: The number of the batch, over all epochs.

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
        fingerprint: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> "TokenisedCorpus":
        """Tokenise `pairs` into `directory`, or reuse the records there.

        A process that is killed leaves its work in `directory.unfinished`,
        and the next one continues from there.

        Args:
            pairs: Source and target texts; not touched on reuse.
            tokenizer: Vocabulary of both sides.
            directory: Folder for the records.
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
        unfinished = directory.with_name(f"{directory.name}.unfinished")
        written = _take_up(unfinished, key, tokenizer.vocab_size)
        try:
            _append_all(pairs, tokenizer, unfinished, written, progress)
            if not written.kept:
                raise config.UserError(
                    "Expected at least one pair of sentences to keep, received "
                    f"{written.read}, none with text and at most {max_length} "
                    "tokens on both sides; check the corpus or raise the "
                    "maximum length."
                )
        except config.UserError:
            shutil.rmtree(unfinished)
            raise
        header = files.to_json(written.header())
        (unfinished / RECORDS_FILE).write_text(header)
        files.give_name(unfinished, directory)
        # Last: whenever this process ends, the next one can go on.
        (directory / JOURNAL).unlink()
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "TokenisedCorpus":
        """Open the records that `build` wrote.

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
        """Copy what is needed into memory."""
        return dataclasses.replace(
            self,
            source=self.source.in_memory(),
            target=self.target.in_memory(),
        )


def _read_header(directory: pathlib.Path) -> dict:
    try:
        return files.from_json((directory / RECORDS_FILE).read_text())
    except (OSError, ValueError, TypeError):
        raise config.UserError(
            f"Expected token records in {directory}, found no readable "
            f"{RECORDS_FILE}; remove or rename what is there."
        ) from None


def _is_whole(
    directory: pathlib.Path, note: Mapping[str, Any], may_go_on: bool = False
) -> bool:
    """Return whether the files are as a header or a journal notes them.

    Args:
        directory: Their folder.
        note: Their sizes and checksums.
        may_go_on: Whether more bytes may follow those that were noted.
    """
    sizes, checksums = note.get("sizes", {}), note.get("checksums", {})
    try:
        return bool(sizes) and all(
            (may_go_on or (directory / name).stat().st_size == size)
            and files.checksum(directory / name, size) == checksums.get(name)
            for name, size in sizes.items()
        )
    except OSError:
        return False


@dataclasses.dataclass
class Written:
    """The progress of writing records.

    Attributes:
        key: The fingerprint of text and vocabulary, and `max_length`.
        dtype: Type of the ids.
        read: Pairs of the text that were read.
        kept: Pairs that are in the records.
        empty: Pairs left out because a side had no text.
        sizes: Bytes of each file.
        checksums: CRC-32 of each file.
    """

    key: Mapping[str, Any]
    dtype: str
    read: int = 0
    kept: int = 0
    empty: int = 0
    sizes: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(FILES, 0)
    )
    checksums: dict[str, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(FILES, 0)
    )

    def header(self) -> dict[str, Any]:
        """Make the header of the records."""
        return {
            **self.key,
            "dtype": self.dtype,
            "dropped": self.read - self.kept - self.empty,
            "empty": self.empty,
            "sizes": self.sizes,
            "checksums": self.checksums,
        }


def _take_up(
    directory: pathlib.Path, key: Mapping[str, Any], vocab_size: int
) -> Written:
    """Cut the files back to the journal's last note, or begin them."""
    new = Written(key, "uint16" if vocab_size <= 2**16 else "int32")
    try:
        noted = files.from_json((directory / JOURNAL).read_text())
        written = Written(**noted)
    except (OSError, ValueError, TypeError):
        written = None
    if (
        written is not None
        and (written.key, written.dtype) == (new.key, new.dtype)
        and _is_whole(directory, noted, may_go_on=True)
    ):
        for name, size in written.sizes.items():
            os.truncate(directory / name, size)
        return written
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    for name in FILES:
        (directory / name).touch()
    return new


def _append_all(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    written: Written,
    progress: Callable[[int], None] | None,
) -> None:
    """Write the pairs that are not written yet, and note the progress."""
    pairs = iter(pairs)
    read = 0
    while chunk := list(itertools.islice(pairs, CHUNK)):
        read += len(chunk)
        new = read - written.read
        if new > 0:
            _append(chunk[-new:], tokenizer, directory, written)
            if read % (CHUNK * CHUNKS_NOTED) == 0:
                _note(directory, written)
        if progress is not None:
            progress(read)
    _note(directory, written)


def _append(
    chunk: Sequence[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    written: Written,
) -> None:
    sources, targets = zip(*chunk, strict=True)
    sides = [
        tokenizer.tokenize_many(sources),
        tokenizer.target.tokenize_many(targets),
    ]
    lengths = np.stack([of_side for _, of_side in sides])
    keep = np.ones(len(chunk), bool)
    max_length = written.key["max_length"]
    if max_length is not None:
        # A side without text has only the end token.
        blank = (lengths == 1).any(axis=0)
        keep = ~blank & (lengths <= max_length).all(axis=0)
        written.empty += int(blank.sum())
    for side, (ids, of_side) in zip(("source", "target"), sides, strict=True):
        kept_ids = ids[np.repeat(keep, of_side)].astype(written.dtype)
        kept_lengths = of_side[keep].astype(np.int32)
        for kind, values in (("ids", kept_ids), ("lengths", kept_lengths)):
            name, data = f"{side}.{kind}", values.tobytes()
            with open(directory / name, "ab") as file:
                file.write(data)
            written.sizes[name] += len(data)
            written.checksums[name] = zlib.crc32(data, written.checksums[name])
    written.read += len(chunk)
    written.kept += int(keep.sum())


def _note(directory: pathlib.Path, written: Written) -> None:
    """Flush the files to disk, then note it in the journal."""
    for name in FILES:
        with open(directory / name, "rb") as file:
            os.fsync(file.fileno())
    noted = files.to_json(dataclasses.asdict(written))
    files.write_text(directory / JOURNAL, noted)
