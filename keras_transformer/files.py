"""Files and folders that are whole or absent, whenever a process may end.

They are written beside their place, flushed to disk and renamed. What is not
whole yet, or on its way out, has a name that starts with `PARTIAL`, and
`remove_leftovers` knows it.
"""

import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import BinaryIO

from keras_transformer.config import UserError

PARTIAL = ".partial-"

logger = logging.getLogger("keras_transformer")


@contextlib.contextmanager
def whole(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Lend a path to write a file or a folder at, which then gets its name.

    Args:
        path: Where it goes, in the place of what is there. Its folder exists.

    Yields:
        A path beside it where nothing is. An error leaves nothing there.
    """
    path = pathlib.Path(path)
    partial = path.with_name(PARTIAL + path.name)
    _erase(partial)
    try:
        yield partial
        _flush(partial)
        if path.is_dir():  # Which no rename replaces.
            with _moved_away(path):
                partial.rename(path)
        else:
            partial.replace(path)
        _flush_one(path.parent)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(partial):
            error.filename = str(path)  # The name that somebody gave.
        _erase(partial)
        raise


@contextlib.contextmanager
def open_whole(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is complete, or never.

    Raises:
        UserError: If `path` is a folder.
    """
    # Not the link, but what it leads to.
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


def remove(folder: pathlib.Path) -> None:
    """Remove a folder: it is whole, or gone, whenever the process ends."""
    with _moved_away(folder):
        pass


def remove_leftovers(*folders: str | os.PathLike) -> None:
    """Remove what a process that was killed had begun to write or remove."""
    for folder in map(pathlib.Path, folders):
        for path in folder.glob(f"{PARTIAL}*"):
            logger.info("Removing %s, left by a process that ended.", path)
            _erase(path)


@contextlib.contextmanager
def _moved_away(folder: pathlib.Path) -> Iterator[None]:
    """Free the name of a folder, and remove the folder afterwards."""
    going = folder.with_name(f"{PARTIAL}old-{folder.name}")
    _erase(going)
    folder.rename(going)
    yield
    shutil.rmtree(going)


def _erase(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def _flush(path: pathlib.Path) -> None:
    """Make a file, or all that a folder holds, outlast a loss of power."""
    if path.is_dir():
        for inside in path.iterdir():
            _flush(inside)
    _flush_one(path)


def _flush_one(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
