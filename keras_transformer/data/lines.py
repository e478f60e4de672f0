r"""Lines of text in UTF-8.

A line ends at "\n" alone, as `wc -l` counts: `str.splitlines` would also end
it at U+0085 and U+2028.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO

from keras_transformer.config import UserError

_BREAKS = str.maketrans("\n\r\t", "   ")


def open_file(path: str | os.PathLike, flag: str) -> BinaryIO:
    """Open a file to read.

    Args:
        path: The file.
        flag: What an error calls it.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"Expected a file that can be read as {flag}, received {path} "
            f"({error.strerror}); check the path."
        ) from None


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
