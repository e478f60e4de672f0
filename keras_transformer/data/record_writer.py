"""Token records, written so that a process which is killed loses minutes.

Files only grow. Every so many pairs they are flushed to disk, and a journal
notes how far they are good; the next process cuts off what came after.
"""

import dataclasses
import itertools
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer import config, files
from keras_transformer.data.tokenizer import Tokenizer

# Pairs tokenised at a time.
CHUNK = 8192
# Chunks from one note in the journal to the next.
CHUNKS_NOTED = 128
JOURNAL = "journal.json"
FILES = ("source.ids", "source.lengths", "target.ids", "target.lengths")


@dataclasses.dataclass
class Written:
    """What there is of some records.

    Attributes:
        key: Names the text, the vocabulary and the greatest length.
        dtype: Of the ids.
        read: Pairs of the text.
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
        """What the records say of themselves."""
        return {
            **self.key,
            "dtype": self.dtype,
            "dropped": self.read - self.kept - self.empty,
            "empty": self.empty,
            "sizes": self.sizes,
            "checksums": self.checksums,
        }


def write_records(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    key: Mapping[str, Any],
    max_length: int | None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the ids and lengths of both sides, or the rest of them.

    Args:
        pairs: All pairs, also those that another process has written.
        tokenizer: Vocabulary of both sides.
        directory: Where the files go, or have begun to.
        key: What is there and has another key is removed.
        max_length: Pairs with a longer side, or with a side without text, are
            left out. `None` keeps every pair.
        progress: Called with the number of pairs read so far.

    Returns:
        The header of the records.

    Raises:
        UserError: If no pair is left; `directory` is gone then.
    """
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
    written = _take_up(directory, key, dtype)
    try:
        _append_all(pairs, tokenizer, directory, written, max_length, progress)
        if not written.kept:
            raise config.UserError(
                "Expected at least one pair of sentences to keep, received "
                f"{written.read}, none with text and at most {max_length} "
                "tokens on both sides; check the corpus or raise the maximum "
                "length."
            )
    except config.UserError:
        shutil.rmtree(directory)
        raise
    return written.header()


def is_whole(
    directory: pathlib.Path,
    sizes: Mapping[str, int],
    checksums: Mapping[str, int],
) -> bool:
    """Whether files begin with as many bytes as were written, unchanged."""
    try:
        return all(
            files.checksum(directory / name, size) == checksums.get(name)
            for name, size in sizes.items()
        )
    except OSError:
        return False


def _take_up(
    directory: pathlib.Path, key: Mapping[str, Any], dtype: str
) -> Written:
    """Cut the files back to what the journal notes, or begin them."""
    try:
        text = (directory / JOURNAL).read_text()
        written = Written(**files.from_json(text))
    except (OSError, ValueError, TypeError):
        written = None
    if (
        written is None
        or (written.key, written.dtype) != (key, dtype)
        or not is_whole(directory, written.sizes, written.checksums)
    ):
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir()
        for name in FILES:
            (directory / name).touch()
        return Written(key, dtype)
    for name, size in written.sizes.items():
        os.truncate(directory / name, size)
    return written


def _append_all(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    written: Written,
    max_length: int | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Write the pairs that are not written yet, and note how far they are."""
    pairs = iter(pairs)
    read = 0
    while chunk := list(itertools.islice(pairs, CHUNK)):
        read += len(chunk)
        new = read - written.read
        if new > 0:
            _append(chunk[-new:], tokenizer, directory, written, max_length)
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
    max_length: int | None,
) -> None:
    sources, targets = zip(*chunk, strict=True)
    sides = [
        tokenizer.tokenize_many(sources),
        tokenizer.target.tokenize_many(targets),
    ]
    lengths = np.stack([of_side for _, of_side in sides])
    keep = np.ones(len(chunk), bool)
    if max_length is not None:
        # Without text there is the end token alone.
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
    """Make what is written outlast a loss of power, then say so."""
    for name in FILES:
        with open(directory / name, "rb") as file:
            os.fsync(file.fileno())
    noted = files.to_json(dataclasses.asdict(written))
    files.write_text(directory / JOURNAL, noted)
