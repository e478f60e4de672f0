"""Reads the file of a vocabulary, of whichever kind it is."""

import os
import pathlib

from keras_transformer.config import UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer
from keras_transformer.data.tokenizer import FILE_OF_RUN, Tokenizer

_ZIP = b"PK"


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
    """Read a sentencepiece model, or what `paired_tokenizer.pack` makes.

    Args:
        path: The file, or a run directory that holds one.

    Raises:
        UserError: If there is no file at `path` or it is not a vocabulary of
            ours.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        path = path / FILE_OF_RUN
    try:
        with open(path, "rb") as file:
            if file.read(len(_ZIP)) != _ZIP:
                return Tokenizer.load(path)
        return PairedTokenizer(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return Tokenizer.load(path)  # Says so.
    except ValueError as error:
        raise UserError(
            f"{path} is not a vocabulary that this package can use ({error}); "
            "restore the file."
        ) from None
