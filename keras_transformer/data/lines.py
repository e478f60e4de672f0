r"""Reads lines of text in UTF-8.

A line ends only at "\n", as `wc -l` counts: `str.splitlines` would also end
it at U+0085 and U+2028.
"""

import codecs
import os
from collections.abc import Iterator
from typing import BinaryIO

from keras_transformer.config import UserError

GZIP = b"\x1f\x8b"
_BREAKS = str.maketrans("\n\r\t", "   ")


def open_file(path: str | os.PathLike, flag: str) -> BinaryIO:
    """Open a file to read, or raise a UserError that names the flag."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"Expected a file that can be read as {flag}, received {path} "
            f"({error.strerror}); check the path."
        ) from None


def on_one_line(text: str) -> str:
    """Replace characters that would end a text's line or column."""
    return text.translate(_BREAKS)


def read_lines(file: BinaryIO, name: str) -> Iterator[str]:
    r"""Decode lines, without their "\n" and a "\r" before it.

    A byte-order mark before the first line is no text.

    Args:
        file: Text in UTF-8.
        name: Its name in errors.

    Raises:
        UserError: If a line is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            if number == 1 and line.startswith(GZIP):
                raise UserError(
                    f"Expected UTF-8 text in {name}, found it packed by gzip; "
                    "unpack it, as in zcat FILE | keras-transformer translate "
                    "--run-dir RUN."
                ) from None
            raise not_utf_8(name, number, error.reason) from None


def not_utf_8(name: str | os.PathLike, line: int, reason: str) -> UserError:
    """Make the error about a line that is not UTF-8."""
    return UserError(
        f"Expected UTF-8 text in {name}, found other bytes in line {line} "
        f"({reason}); convert the text."
    )
