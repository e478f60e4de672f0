"""Writes files and folders that are whole or absent, even after a kill.

They are written beside their place, flushed to disk and renamed. An incomplete
file, or one being removed, has a name that starts with `PARTIAL` and names its
process. So two processes that write the same file do not collide, and the last
to finish wins. `remove_leftovers` knows such names.
"""

import contextlib
import errno
import glob
import json
import os
import pathlib
import re
import shutil
import socket
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from keras_transformer.config import UserError, logger

PARTIAL = ".partial-"
# The errors of reading a damaged archive. An unknown compression, or a member
# that claims to be encrypted, is a RuntimeError.
ZIP_DAMAGES = (
    *(EOFError, OSError, RuntimeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)
# Errors of a full disk or quota. Those of writing do not name the file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of flushing a folder if the file system can only flush files.
_UNFLUSHED = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def whole(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Lend a free path beside `path`, and rename it to that, in its place.

    An error leaves nothing there.
    """
    path = pathlib.Path(path)
    name = re.compile(rf"{re.escape(_ours())}\d+-{re.escape(path.name)}")
    for left in path.parent.glob(f"{_ours()}*-{glob.escape(path.name)}"):
        if name.fullmatch(left.name) and not _is_being_written(left):
            _erase(left)
    partial = _beside(path)
    _erase(partial)
    try:
        yield partial
        give_name(partial, path)
    except BaseException as error:
        if isinstance(error, OSError):
            is_full = error.errno in FULL and error.filename is None
            if is_full or error.filename == str(partial):
                error.filename = str(path)  # The name that the caller gave.
        _erase(partial)
        raise


def give_name(made: pathlib.Path, path: pathlib.Path) -> None:
    """Give a complete file or folder its name, once it is on disk."""
    for each in [*made.rglob("*"), made]:
        _flush(each)
    if path.is_dir():  # A rename cannot replace it.
        with _moved_away(path):
            made.rename(path)
    else:
        made.replace(path)
    _flush(path.parent)


@contextlib.contextmanager
def open_whole(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is complete, or never."""
    # Write the target of a link, not the link.
    path = pathlib.Path(os.path.realpath(path))
    if path.is_dir():
        raise UserError(
            f"Expected the name of a file, but {path} is a folder; choose "
            "another name."
        )
    if path.exists() and not path.is_file():  # A pipe, or /dev/null.
        with open(path, "wb") as file:
            yield file
        return
    with whole(path) as partial, open(partial, "wb") as file:
        yield file


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a file of UTF-8 whole."""
    with open_whole(path) as file:
        file.write(text.encode())


def remove(path: pathlib.Path) -> None:
    """Remove a file or a folder: even after a kill it is whole or gone."""
    with _moved_away(path):
        pass


def remove_leftovers(*folders: str | os.PathLike) -> None:
    """Remove what processes that ended had begun to write or remove."""
    for folder in map(pathlib.Path, folders):
        for path in folder.glob(f"{PARTIAL}*"):
            if not _is_being_written(path):
                logger.info("Removing %s, left by a process that ended.", path)
                _erase(path)


def checksum(path: str | os.PathLike) -> int:
    """Compute CRC-32 of a file."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            crc = zlib.crc32(piece, crc)
    return crc


def state(path: str | os.PathLike) -> list[str | int]:
    """Return path, size and time of the last change of a file, for JSON."""
    status = os.stat(path)
    return [os.fspath(path), status.st_size, status.st_mtime_ns]


def to_json(fields: Mapping[str, Any]) -> str:
    """Write JSON with a checksum, which `from_json` verifies."""
    return json.dumps({**fields, "checksum": _of_fields(fields)}, indent=2)


def from_json(text: str) -> dict[str, Any]:
    """Read an object of `to_json`; `ValueError` if it is not as it was."""
    fields = dict(json.loads(text))
    if fields.pop("checksum", None) not in (None, _of_fields(fields)):
        raise ValueError(
            'it is not as it was written; remove its "checksum" if you '
            "changed it on purpose"
        )
    return fields


def _of_fields(fields: Mapping[str, Any]) -> str:
    """Compute CRC-32 of the fields, independent of their layout."""
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def _moved_away(path: pathlib.Path) -> Iterator[None]:
    """Free a name, and afterwards remove the file or folder that had it."""
    going = _beside(path, "old-")
    _erase(going)
    path.rename(going)
    try:
        yield
    except BaseException:
        if not os.path.lexists(path):
            going.rename(path)
        raise
    _erase(going)


def _beside(path: pathlib.Path, what: str = "") -> pathlib.Path:
    """Return this process's name for `path` while it is incomplete."""
    return path.with_name(f"{_ours()}{os.getpid()}-{what}{path.name}")


def _ours() -> str:
    return f"{PARTIAL}{socket.gethostname()}-"


def _is_being_written(partial: pathlib.Path) -> bool:
    """Return whether another running process of this machine owns the file."""
    owner = re.match(rf"{re.escape(_ours())}(\d+)-", partial.name)
    if not owner or int(owner[1]) == os.getpid():
        return False
    try:
        os.kill(int(owner[1]), 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # It is another user's.
    return True


def _erase(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def _flush(path: pathlib.Path) -> None:
    """Flush a file, or a folder without what is in it, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNFLUSHED or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
