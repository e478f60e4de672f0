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
from typing import Any, BinaryIO, TypeVar

from keras_transformer.config import UserError
from keras_transformer.machine import files

CHUNK_LINES = 10_000

_BREAKS = str.maketrans("\n\r\t", "   ")

Line = TypeVar("Line")

logger = logging.getLogger("keras_transformer")


def open_input(
    path: pathlib.Path | None,
    stack: contextlib.ExitStack,
    flag: str = "`input`",
) -> tuple[BinaryIO, str, int | None]:
    """Open the text to translate.

    Args:
        path: A file, or None for standard input.
        stack: Closes the file.
        flag: What an error calls it.

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
            f"Expected a file that can be read as {flag}, received {path} "
            f"({error.strerror}); check the path."
        ) from None
    total = None
    if file.seekable():
        # Finds bad bytes in the last line before the first is translated.
        total = sum(1 for _ in read_lines(file, str(path)))
        file.seek(0)
    return file, str(path), total


def open_pairs(
    one: pathlib.Path | None,
    one_flag: str,
    other: pathlib.Path,
    other_flag: str,
    stack: contextlib.ExitStack,
) -> tuple[Iterator[tuple[str, str]], int | None]:
    """Open two texts that belong together line by line.

    Args:
        one: A file, or None for standard input.
        one_flag: What an error calls it.
        other: Another file.
        other_flag: What an error calls that.
        stack: Closes the files.

    Returns:
        The pairs of lines and their number, where that can be known.

    Raises:
        UserError: If a file cannot be read, is not UTF-8, or has more lines
            than the other; the last may show only at the end of the pairs.
    """
    file, name, total = open_input(one, stack, one_flag)
    other_file, other_name, other_total = open_input(other, stack, other_flag)
    names = f"{one_flag} and {other_flag}"
    if None not in (total, other_total) and total != other_total:
        raise UserError(
            f"Expected as many lines in {names}, received {total} and "
            f"{other_total}; align the files."
        )

    def pairs() -> Iterator[tuple[str, str]]:
        missing: Any = object()
        every = itertools.zip_longest(
            read_lines(file, name),
            read_lines(other_file, other_name),
            fillvalue=missing,
        )
        for number, pair in enumerate(every, start=1):
            if missing in pair:
                short = name if pair[0] is missing else other_name
                raise UserError(
                    f"Expected as many lines in {names}, found no line "
                    f"{number} in {short}; align the files."
                )
            yield pair

    return pairs(), total


def open_output(
    path: pathlib.Path | None, stack: contextlib.ExitStack
) -> BinaryIO:
    """Open a new file as `files.open_whole` does; for None standard output.

    Raises:
        UserError: If there is such a file: it may be an input.
    """
    if path is None:
        return sys.stdout.buffer
    if path.is_file():
        raise UserError(
            f"Expected a new file as `output`, but {path} exists; remove it or "
            "choose another name."
        )
    return stack.enter_context(files.open_whole(path))


def on_one_line(text: str) -> str:
    """Keep a text on its line and in its column."""
    return text.translate(_BREAKS)


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


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Cut into lists of `CHUNK_LINES`: memory for any number of lines."""
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        yield chunk
