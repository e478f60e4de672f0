"""The names of the files in a run directory.

    config.json           the model, its text and its settings
    tokenizer.model       the vocabulary; in an imported run perhaps a zip of
                          two, as in `data.paired_tokenizer`
    final.weights.h5      the weights to translate with: averaged, last or best
    result.json           which those are, and what validation said of them
    curve.png             the learning curve
    records/SPLIT/        the corpus as ids
    records/watched.json  the pairs that validation watches
    checkpoints/step-N/   weights, optimizer, place in the data
    checkpoints/best-N/   weights of the best validation, with `patience`
    logs/                 history.csv, TensorBoard's logs
    evaluation/           translations and scores of test sets
    distilled/            the text of a student; distilled.unfinished/ until
                          complete
    exported/             the model as `serve` needs it
    training.lock         the process that trains it now

The first three of a finished run are enough to translate, score, evaluate and
export.
"""

import os
import pathlib

from keras_transformer.config import UserError
from keras_transformer.data.symbols import TOKENIZER_FILE as TOKENIZER_FILE

CONFIG_FILE = "config.json"
FINAL_FILE = "final.weights.h5"
RESULT_FILE = "result.json"
CURVE_FILE = "curve.png"
RECORDS = "records"
WATCHED_FILE = "watched.json"
CHECKPOINTS = "checkpoints"
LOGS = "logs"
HISTORY_FILE = "history.csv"
EVALUATION = "evaluation"
DISTILLED = "distilled"
EXPORTED = "exported"
LOCK_FILE = "training.lock"


def has_begun(run_dir: str | os.PathLike) -> bool:
    """Return whether a run has weights, so that its settings are binding.

    A run that was prepared and never took a step is not bound to them.
    """
    run_dir = pathlib.Path(run_dir)
    return (run_dir / CONFIG_FILE).exists() and (
        (run_dir / FINAL_FILE).exists()
        or any(
            path.name.removeprefix("step-").isdigit()
            for path in (run_dir / CHECKPOINTS).glob("step-*")
        )
    )


def check_empty(run_dir: str | os.PathLike) -> pathlib.Path:
    """Refuse a place that is not empty, before anything is read.

    Raises:
        UserError: If it is not empty.
    """
    path = pathlib.Path(run_dir)
    if os.path.lexists(path) and not (
        path.is_dir() and not any(path.iterdir())
    ):
        raise UserError(
            f"{path} exists already and is left as it is; choose another "
            "`run_dir` or remove it."
        )
    return path
