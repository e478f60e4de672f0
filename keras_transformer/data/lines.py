r"""Reads lines of text in UTF-8: one reader, with one set of checks.

A line ends only at "\n", as `wc -l` counts: `str.splitlines` would also end
it at U+0085 and U+2028.
"""

import codecs
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from keras_transformer.config import UserError

# The ending, the first bytes and the command that unpacks.
PACKED = {
    ".gz": (b"\x1f\x8b", "gunzip"),
    ".zst": (b"\x28\xb5\x2f\xfd", "unzstd"),
    ".xz": (b"\xfd7zXZ\0", "unxz"),
    ".bz2": (b"BZh", "bunzip2"),
}
_NO_TEXT = {
    "\0": (
        "a zero byte",
        "remove it with tr -d '\\000', or convert UTF-16 with iconv -f "
        "UTF-16LE -t UTF-8",
    ),
    "\x1b$": (
        "Japanese in ISO-2022-JP",
        "convert it with iconv -f ISO-2022-JP -t UTF-8",
    ),
}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# No text may hold a NUL, which a sampled translation may.
_BREAKS = str.maketrans("\n\r\0", "   ")
# The most bytes read at a time.
BLOCK_BYTES = 1 << 20
_LONGEST = 1 << 24  # Characters of a line: a few bytes of gzip can be any.


def open_file(path: str | os.PathLike, flag: str) -> BinaryIO:
    """Open a file to read, or raise a UserError that names the flag."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise UserError(
            f"Expected a file that can be read as {flag}, received {path} "
            f"({error.strerror}); check the path."
        ) from None


def on_one_line(text: str, tab: str = " ") -> str:
    """Replace characters that would end a text's line, or its column: tabs."""
    return text.translate(_BREAKS).replace("\t", tab)


def read_texts(path: pathlib.Path) -> Iterator[str]:
    """Read the lines of a file, plain or gzipped, as `read_lines` does."""
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rb") as file:
        try:
            yield from read_lines(cast(BinaryIO, file), str(path))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"Expected gzipped text in {path}, found something else or "
                f"half of it ({error}); fetch the file again."
            ) from None


def read_lines(file: BinaryIO, name: str) -> Iterator[str]:
    r"""Decode lines, without their "\n" and a "\r" before it.

    A byte-order mark before the first line is no text. Errors have the `name`:
    a line is not UTF-8 or holds a zero byte, or all lines end with "\r" alone.
    """
    rest = ""
    for text in _decoded(file, name):
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield line.removesuffix("\r")
        if len(rest) > _LONGEST and "\r" not in rest:
            raise UserError(
                f"Expected lines of text in {name}, received more than "
                f"{_LONGEST:,} characters without a line end; break them."
            )
    if rest:
        yield rest.removesuffix("\r")


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    """Decode a file piece by piece, and refuse what is no text in UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, returns, is_first = 0, 0, True
    # As much as there is: a pipe may wait.
    while block := cast(io.BufferedReader, file).read1(BLOCK_BYTES):
        if is_first and (form := _other_form(block)):
            raise UserError(f"Expected UTF-8 text in {name}, found {form}.")
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            # It also holds the end of the block before, without a line end.
            lines += error.object.count(b"\n", 0, error.start)
            raise _not_utf_8(name, lines + 1, error.reason) from None
        for sign, (what, advice) in _NO_TEXT.items():
            if sign in text:
                lines += text.count("\n", 0, text.index(sign))
                raise UserError(
                    f"Expected text in {name}, found {what} in line "
                    f"{lines + 1}; {advice}."
                )
        lines += text.count("\n")
        returns += text.count("\r")
        yield text.removeprefix("\ufeff") if is_first else text
        is_first = is_first and not text
    if decoder.getstate()[0]:
        raise _not_utf_8(name, lines + 1, "unexpected end of data")
    if returns > 1 and lines <= 1:
        raise UserError(
            f"Expected line feeds at the ends of lines in {name}, found "
            "carriage returns alone; convert it with tr '\\r' '\\n'."
        )


def _other_form(begin: bytes) -> str | None:
    """Say what a file is instead of UTF-8, and how to mend it."""
    if begin.startswith(_UTF_16):
        return "UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
    for ending, (first, command) in PACKED.items():
        if begin.startswith(first):
            return f"a packed file, {ending}; unpack it with {command}"
    return None


def _not_utf_8(name: str, line: int, reason: str) -> UserError:
    return UserError(
        f"Expected UTF-8 text in {name}, found other bytes in line {line} "
        f"({reason}); convert it with iconv -f ENCODING -t UTF-8. ENCODING may "
        "be WINDOWS-1252, of Chinese GB18030 or BIG5, of Japanese CP932 or "
        "EUC-JP."
    )
