"""Keeps token records on disk, so that no epoch waits for the tokenizer."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files

RECORDS_FILE = "records.json"
# Pairs tokenised at a time.
CHUNK = 8192
FILES = ("source.ids", "source.lengths", "target.ids", "target.lengths")


@dataclasses.dataclass(eq=False)
class Side:
    """One language of a corpus, all sentences end to end."""

    ids: np.ndarray  # (sum of lengths,), mapped if it is a file's.
    lengths: np.ndarray  # (pairs,), tokens of each sentence.
    file: int | None = None  # The descriptor of the file, if there is one.

    def __post_init__(self) -> None:
        # (pairs,), where each sentence begins in `ids`.
        self.starts = np.cumsum(self.lengths, dtype=np.int64)
        self.starts -= self.lengths

    @classmethod
    def load(cls, stem: pathlib.Path, dtype: str) -> "Side":
        lengths = np.fromfile(f"{stem}.lengths", np.int32)
        ids = np.asarray(np.memmap(f"{stem}.ids", dtype, mode="r"))
        file = os.open(f"{stem}.ids", os.O_RDONLY)
        side = cls(ids, lengths, file)
        weakref.finalize(side, os.close, file)
        return side

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Gather sentences, int32 `(len(rows), length)`, as in `gather`."""
        columns = np.arange(length)
        starts = self.starts[rows]
        lengths = np.where(rows < 0, 0, self.lengths[rows])
        filled = columns < lengths[:, None]
        batch = np.full(filled.shape, config.PAD_ID, np.int32)
        if self.file is None:
            batch[filled] = self.ids[(starts[:, None] + columns)[filled]]
        else:
            # Read it: what is mapped would count as our memory.
            places = np.stack([filled.sum(axis=1), starts], axis=1)
            places *= self.ids.itemsize
            read = (os.pread(self.file, *place) for place in places.tolist())
            batch[filled] = np.frombuffer(b"".join(read), self.ids.dtype)
        return batch


@dataclasses.dataclass(eq=False)
class TokenisedCorpus:
    """Aligned token records."""

    source: Side
    target: Side
    dropped: int = 0  # Pairs left out because a side had too many tokens.
    empty: int = 0  # Pairs left out because a side had no text.

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def num_tokens(self) -> tuple[int, int]:
        """Return the tokens of source and target, including end tokens."""
        source, target = self.source.lengths, self.target.lengths
        return int(source.sum(dtype="int64")), int(target.sum(dtype="int64"))

    def gather(
        self, rows: np.ndarray, source_length: int, target_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gather the pairs `rows` `(B,)`, of which -1 is a row of padding.

        Returns int32 `(B, S)` and `(B, T)`, PAD after each sentence.
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
    ) -> "TokenisedCorpus":
        """Tokenise `pairs` into a folder, in place of other records there.

        Pairs with a side above `max_length`, or without text, are dropped and
        counted; None keeps every pair.
        """
        directory = pathlib.Path(directory)
        # Records without their header are ours too.
        present = {path.name for path in directory.glob("*")}
        is_other = directory.is_file() or present - {*FILES}
        if is_other and RECORDS_FILE not in present:
            raise config.UserError(
                f"Expected a free place for token records in {directory}, "
                "found other files; remove or rename what is there."
            )
        directory.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(directory) as partial:
            partial.mkdir()
            header = _write(partial, pairs, tokenizer, max_length)
            (partial / RECORDS_FILE).write_text(files.to_json(header))
        return cls._open(directory, header)

    @classmethod
    def _open(cls, folder: pathlib.Path, header: dict) -> "TokenisedCorpus":
        source = Side.load(folder / "source", header["dtype"])
        target = Side.load(folder / "target", header["dtype"])
        return cls(source, target, header["dropped"], header["empty"])

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "TokenisedCorpus":
        """Open the records that `build` wrote, if they still are so."""
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
        return cls._open(directory, header)

    @classmethod
    def in_memory(
        cls,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        max_length: int | None = None,
    ) -> "TokenisedCorpus":
        """Tokenise pairs as `build` does, and leave no files."""
        with tempfile.TemporaryDirectory() as folder:
            built = cls.build(pairs, tokenizer, f"{folder}/r", max_length)
        sides = built.source, built.target
        source, target = (Side(np.array(x.ids), x.lengths) for x in sides)
        return dataclasses.replace(built, source=source, target=target)


def _write(
    folder: pathlib.Path,
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    max_length: int | None,
) -> dict[str, Any]:
    """Write the files of `FILES`, and return their header."""
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
    checksums = dict.fromkeys(FILES, 0)
    read = kept = empty = 0  # Pairs.
    rest = iter(pairs)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open(folder / x, "wb")) for x in FILES]
        while chunk := list(itertools.islice(rest, CHUNK)):
            sources, targets = zip(*chunk, strict=True)
            source, of_source = tokenizer.tokenize_many(sources)
            target, of_target = tokenizer.target.tokenize_many(targets)
            keep = np.ones(len(chunk), bool)
            if max_length is not None:
                lengths = np.stack([of_source, of_target])
                # A side without text has only the end token.
                blank = (lengths == 1).any(axis=0)
                keep = ~blank & (lengths <= max_length).all(axis=0)
                empty += int(blank.sum())
            columns = (
                source[np.repeat(keep, of_source)].astype(dtype),
                of_source[keep].astype(np.int32),
                target[np.repeat(keep, of_target)].astype(dtype),
                of_target[keep].astype(np.int32),
            )
            for file, name, values in zip(opened, FILES, columns, strict=True):
                file.write(values.data)
                checksums[name] = zlib.crc32(values.data, checksums[name])
            read += len(chunk)
            kept += int(keep.sum())
    if not kept:
        limit = f" and at most {max_length} tokens" if max_length else ""
        raise config.UserError(
            f"Expected a pair of sentences to keep, received {read}, none with "
            f"text{limit} on both sides; check the corpus"
            f"{' or raise the maximum length' if limit else ''}."
        )
    dropped = read - kept - empty
    return dict(dtype=dtype, dropped=dropped, empty=empty, checksums=checksums)
