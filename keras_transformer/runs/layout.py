"""The names of what a run directory holds.

    config.json           what was trained, on what, and how
    tokenizer.model       the vocabulary; of an imported run perhaps a zip of
                          two, as in `data.paired_tokenizer`
    final.weights.h5   the weights that the training ended with
    result.json           which those are, and what validation said of them
    curve.png             the learning curve
    records/SPLIT/        the corpus as ids; SPLIT.unfinished/ on its way
    records/remembered.json  what the text was, so that no start reads it again
    checkpoints/step-N/   weights, optimizer, place in the data
    logs/                 history.csv, TensorBoard's logs
    evaluation/           translations and scores of test sets
    exported/             the model as `serve` needs it
    training.lock         who trains it now

Of a finished run the first three are enough to translate, score, evaluate and
export.
"""

import os
import pathlib

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.model"  # As `Tokenizer.load` looks for it.
FINAL_FILE = "final.weights.h5"
RESULT_FILE = "result.json"
CURVE_FILE = "curve.png"
RECORDS = "records"
REMEMBERED_FILE = "remembered.json"
CHECKPOINTS = "checkpoints"
LOGS = "logs"
HISTORY_FILE = "history.csv"
EVALUATION = "evaluation"
EXPORTED = "exported"
LOCK_FILE = "training.lock"


def has_begun(run_dir: str | os.PathLike) -> bool:
    """Whether a run has weights, so that its settings bind whoever goes on.

    What was prepared and never took a step binds nobody.
    """
    run_dir = pathlib.Path(run_dir)
    return (run_dir / CONFIG_FILE).exists() and (
        (run_dir / FINAL_FILE).exists()
        or any((run_dir / CHECKPOINTS).glob("step-*"))
    )
