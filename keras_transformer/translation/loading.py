"""Loads the models of one or several runs, with their one vocabulary."""

import os
from collections.abc import Sequence

from keras_transformer.config import ENSEMBLE_MEANS, UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.vocabulary import load_vocabulary


def load(
    run_dirs: Sequence[str | os.PathLike],
    average: int | None = None,
    mean: str = ENSEMBLE_MEANS[0],
) -> tuple[Ensemble, Tokenizer]:
    """Load the models of runs, to search together.

    Args:
        run_dirs: The run directories, at least one.
        average: Newest checkpoints of each run to average, as in
            `averaging.load_model`.
        mean: As in `Ensemble`.

    Raises:
        UserError: If one is not a run directory with a checkpoint, its
            vocabulary is not that of its model, or not that of the first run.
    """
    first, *others = run_dirs
    model, tokenizer = _load(first, average)
    models = [model]
    for run_dir in others:
        model, its_own = _load(run_dir, average)
        if its_own.model != tokenizer.model:
            raise UserError(
                f"Expected runs of one vocabulary, but that of {run_dir} is "
                f"not that of {first}; train it with --tokenizer "
                f"{os.path.join(first, TOKENIZER_FILE)}."
            )
        models.append(model)
    return Ensemble(models, mean), tokenizer


def _load(
    run_dir: str | os.PathLike, average: int | None
) -> tuple[Transformer, Tokenizer]:
    model = averaging.load_model(run_dir, average)
    tokenizer = load_vocabulary(run_dir)
    if model.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"Expected {model.vocab_size} pieces in {run_dir}/"
            f"{TOKENIZER_FILE} as in the model, found "
            f"{tokenizer.vocab_size}; restore the file of this run."
        )
    return model, tokenizer
