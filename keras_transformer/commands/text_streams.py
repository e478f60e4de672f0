"""Opens the texts of a command line: files or streams, whole or not at all."""

import argparse
import contextlib
import itertools
import logging
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TypeVar

from keras_transformer.config import UserError
from keras_transformer.data.lines import open_file, read_lines
from keras_transformer.machine import files

CHUNK_LINES = 10_000

Line = TypeVar("Line")

logger = logging.getLogger("keras_transformer")


def given_text(argument: str) -> str:
    """Check a text from the command line, as a `type` for argparse."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(
            "expected a text in UTF-8, received other bytes; convert it"
        ) from None
    return argument


def open_input(
    path: pathlib.Path | None, stack: contextlib.ExitStack, flag: str
) -> tuple[BinaryIO, str, int | None]:
    """Open the text to translate: a file, or standard input for None.

    Return it, its name for errors, and the number of its lines if it can be
    read twice.
    """
    if path is None:
        if sys.stdin.isatty():
            logger.info("Reading standard input up to Ctrl-D.")
        return sys.stdin.buffer, "standard input", None
    file = stack.enter_context(open_file(path, flag))
    total = None
    if file.seekable():
        # This finds bad bytes before the first line is translated.
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
    """Open two texts that belong together line by line, as `open_input` does.

    Return the pairs of lines and, if it can be known, their number. That one
    has more lines than the other may show only at the end of the pairs.
    """
    file, name, total = open_input(one, stack, one_flag)
    other_file, other_name, other_total = open_input(other, stack, other_flag)
    unequal = UserError(
        f"Expected as many lines in {one_flag} and {other_flag}, received more "
        "in one of them; align the files."
    )
    if None not in (total, other_total) and total != other_total:
        raise unequal

    def pairs() -> Iterator[tuple[str, str]]:
        sides = read_lines(file, name), read_lines(other_file, other_name)
        try:
            yield from zip(*sides, strict=True)
        except ValueError:
            raise unequal from None

    return pairs(), total


def open_output(
    path: pathlib.Path | None, stack: contextlib.ExitStack
) -> BinaryIO:
    """Open a new file, written whole, or standard output for None."""
    if path is None:
        return sys.stdout.buffer
    if path.is_file():  # It may be an input.
        raise UserError(
            f"Expected a new file as `output`, but {path} exists; remove it or "
            "choose another name."
        )
    return stack.enter_context(files.open_whole(path))


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Cut lines into lists of `CHUNK_LINES`, to bound the memory."""
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        yield chunk
