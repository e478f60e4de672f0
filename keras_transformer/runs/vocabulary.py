"""The vocabulary of a run, which must be the one that it was trained with."""

import os
import pathlib
import zlib

from keras_transformer.config import UserError
from keras_transformer.data.paired_tokenizer import load_tokenizer
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import RunConfig


def load_vocabulary(
    run_dir: str | os.PathLike, run: RunConfig | None = None
) -> Tokenizer:
    """Read `tokenizer.model`.

    Args:
        run_dir: The run directory.
        run: Its configuration, if it is read already.

    Raises:
        UserError: If `run_dir` is not a run directory, or its vocabulary is
            missing or has changed: other pieces would be other words.
    """
    path = pathlib.Path(run_dir) / TOKENIZER_FILE
    known = (run or RunConfig.load(run_dir)).vocabulary
    tokenizer = load_tokenizer(path)
    if known not in (None, checksum_of(tokenizer)):
        raise UserError(
            f"{path} is not the vocabulary that this run was trained with; "
            "restore the file."
        )
    return tokenizer


def checksum_of(tokenizer: Tokenizer) -> str:
    """Compute CRC-32 of the file that a tokenizer is written to."""
    return f"{zlib.crc32(tokenizer.model):08x}"
