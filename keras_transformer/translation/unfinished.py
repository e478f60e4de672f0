"""Keeps the finished part of a long translation, so that a killed one resumes.

Texts are translated in chunks. Until the last one is done, the lines made from
each chunk are a file in the folder `NAME.unfinished`. The file's name is a
checksum of the texts and of everything that decides how they are translated, so
another model, search or text never reuses it.
"""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from keras_transformer.machine import files
from keras_transformer.runs import layout
from keras_transformer.translation.display import SentenceDisplay

# Texts that are translated before they are written.
CHUNK = 4_000
_SUFFIX = ".lines"

Row = TypeVar("Row")


class Unfinished:
    """The lines of an incomplete file, kept in a folder chunk by chunk."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._paths: list[pathlib.Path] = []

    def add(self, about: Any, lines: Iterable[bytes]) -> bool:
        """Keep the next chunk's lines, unless a killed process has made them.

        `about` is all that decides the lines, ready for JSON. Returns whether
        they were there; then nothing has asked for `lines`.
        """
        text = json.dumps([len(self._paths), about])
        name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        path = self._folder / f"{name}{_SUFFIX}"
        was_there = path.exists()
        if not was_there:
            with files.open_whole(path) as file:
                file.writelines(lines)
        self._paths.append(path)
        return was_there

    def lines(self) -> Iterator[bytes]:
        """Read the lines of all chunks in order."""
        for path in self._paths:
            with path.open("rb") as file:
                yield from file


@contextlib.contextmanager
def unfinished(path: pathlib.Path) -> Iterator[Unfinished]:
    """Keep the lines of `path`, which is to be written within the context."""
    folder = path.with_name(f"{path.name}.unfinished")
    with layout.only_writer(folder):
        files.remove_leftovers(folder)
        yield Unfinished(folder)
        for kept in folder.glob(f"*{_SUFFIX}"):
            kept.unlink()
    with contextlib.suppress(OSError):  # Somebody else's files are in it.
        folder.rmdir()


def write_chunks(
    output: Any,
    rows: Iterable[list[Row]],
    make: Callable[[list[Row]], Iterator[bytes]],
    how: Any,
    display: SentenceDisplay,
) -> None:
    """Make the lines of every chunk, which `how` and its rows decide."""
    for chunk in rows:
        was_there = output.add([how, chunk], make(chunk))
        display.end_chunk(len(chunk), was_there)


def chunks(
    rows: Iterable[Row], pauses: Callable[[], bool] = lambda: False
) -> Iterator[list[Row]]:
    """Cut rows into lists of `CHUNK`; one ends early where the rows pause."""
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK or pauses():
            yield chunk
            chunk = []
    if chunk:
        yield chunk
