"""Finds the format of a folder, and reads its model."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.importing import hugging_face, marian_npz, opennmt
from keras_transformer.importing.imported import Imported
from keras_transformer.importing.source_files import check_folder
from keras_transformer.machine.files import ZIP_DAMAGES

# Modules of this folder with `is_here(folder)` and `read(folder)`.
_READERS = (opennmt, hugging_face, marian_npz)
# Errors of a file whose content does not fit its format.
_MISFITS = (
    *ZIP_DAMAGES,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    tf.errors.OpError,
)


@contextlib.contextmanager
def refusing(folder: pathlib.Path) -> Iterator[None]:
    """Turn errors of a model's files into one sentence.

    Raises:
        UserError: Instead of any error that its files have raised.
    """
    try:
        yield
    except _MISFITS as error:
        # Only the first line, shortened: TensorFlow writes more.
        what = str(error).partition("\n")[0][:300]
        raise UserError(
            f"The model in {folder} cannot be imported, since its files do not "
            f"fit together or one is damaged ({type(error).__name__}: {what}); "
            "download them again."
        ) from error


def read(directory: str | os.PathLike) -> Imported:
    """Read a model that another system has trained.

    Args:
        directory: Folder of its files.

    Raises:
        UserError: If there is no such folder, or no model in it that can be
            read and imported exactly; it names the obstacle.
    """
    folder = pathlib.Path(directory)
    check_folder(folder)
    for reader in _READERS:
        if reader.is_here(folder):
            with refusing(folder):
                return reader.read(folder)
    raise UserError(
        f"Expected in {folder} the files of a model, found neither "
        "model.safetensors or pytorch_model.bin beside a config.json (Hugging "
        "Face), nor decoder.yml beside an .npz (Marian), nor checkpoint "
        "(OpenNMT-tf); give the folder that holds them."
    )
