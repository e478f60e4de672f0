r"""Lines of text in and out: UTF-8, whole files or none.

A line ends at "\n" alone, as `wc -l` counts: `str.splitlines` would also end
it at U+0085 and U+2028.
"""

import contextlib
import itertools
import logging
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from keras_transformer.config import UserError

CHUNK_LINES = 10_000

logger = logging.getLogger("keras_transformer")


def open_input(
    path: pathlib.Path | None, stack: contextlib.ExitStack
) -> tuple[BinaryIO, str, int | None]:
    """Open the text to translate.

    Args:
        path: A file, or None for standard input.
        stack: Closes the file.

    Returns:
        The open file, its name for errors, and the number of its lines where
        it can be read twice.

    Raises:
        UserError: If the file cannot be read or is not UTF-8.
    """
    if path is None:
        if sys.stdin.isatty():
            logger.info("Reading standard input up to Ctrl-D.")
        return sys.stdin.buffer, "standard input", None
    try:
        file = stack.enter_context(open(path, "rb"))
    except OSError as error:
        raise UserError(
            f"Expected a file that can be read as --input, received {path} "
            f"({error.strerror}); check the path."
        ) from None
    total = None
    if file.seekable():
        # Finds bad bytes in the last line before the first is translated.
        total = sum(1 for _ in read_lines(file, str(path)))
        file.seek(0)
    return file, str(path), total


def read_lines(file: BinaryIO, name: str) -> Iterator[str]:
    r"""Decode lines, without their "\n" and a "\r" before it.

    Args:
        file: Text in UTF-8.
        name: What an error calls it.

    Raises:
        UserError: If a line is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"Expected UTF-8 text in {name}, found other bytes in line "
                f"{number} ({error.reason}); convert the text."
            ) from None


def chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Cut into lists of `CHUNK_LINES`: memory for any number of lines."""
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        yield chunk


@contextlib.contextmanager
def write_whole(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is complete, or never."""
    if path.is_dir():
        raise UserError(
            f"Expected the name of a file, but {path} is a folder; choose "
            "another name."
        )
    partial = path.with_name(f".partial-{path.name}")
    with open(partial, "wb") as file:
        try:
            yield file
            file.flush()
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
