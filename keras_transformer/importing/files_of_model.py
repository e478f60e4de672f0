"""The files of a folder, and what its name says."""

import pathlib
import re

from keras_transformer.config import UserError


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file that a model needs.

    Raises:
        UserError: If it is not there.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"Expected the file {path}, found none; download it into the "
            "folder of the model."
        ) from None


def languages(folder: pathlib.Path) -> tuple[str | None, str | None]:
    """Source and target, where the folder has a name like `opus-mt-en-de`."""
    named = re.search(
        r"opus-mt-(?:tc-[a-z]+-)?([a-z]+)-([a-z]+)$", folder.resolve().name
    )
    return (named[1], named[2]) if named else (None, None)
