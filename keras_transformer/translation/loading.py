"""Loads the models of one or several runs, and freezes their weights."""

import os
from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.config import SEARCH_PRECISIONS, UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.ensemble import Ensemble
from keras_transformer.decoding.frozen_weights import FrozenWeights, can_pack
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.vocabulary import load_vocabulary


def load(
    run_dirs: Sequence[str | os.PathLike],
    average: int | None,
    mean: str,
) -> tuple[Ensemble, Tokenizer, tuple[Chosen, ...]]:
    """Load the models of one or several runs, to search together.

    `average` is that of `averaging.choose`, `mean` that of `Ensemble`.

    Returns:
        The models, their tokenizer, and the weights of each.

    Raises:
        UserError: If one is not a run directory with a checkpoint, its
            vocabulary is not that of its model, or not that of the first run.
    """
    first, *others = run_dirs
    model, tokenizer, chosen = _load(first, average)
    models, weights = [model], [chosen]
    for run_dir in others:
        model, its_own, chosen = _load(run_dir, average)
        if its_own.model != tokenizer.model:
            raise UserError(
                f"Expected runs of one vocabulary, but that of {run_dir} is "
                f"not that of {first}; train it with --tokenizer "
                f"{os.path.join(first, TOKENIZER_FILE)}."
            )
        models.append(model)
        weights.append(chosen)
    return Ensemble(models, mean), tokenizer, tuple(weights)


def _load(
    run_dir: str | os.PathLike, average: int | None
) -> tuple[Transformer, Tokenizer, Chosen]:
    model, chosen = averaging.load(run_dir, average)
    tokenizer = load_vocabulary(run_dir)
    if model.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"Expected {model.vocab_size} pieces in {run_dir}/"
            f"{TOKENIZER_FILE} as in the model, found "
            f"{tokenizer.vocab_size}; restore the file of this run."
        )
    return model, tokenizer, chosen


def check_precision(precision: str) -> None:
    """Raise `UserError` unless a search can compute in this precision."""
    if precision not in SEARCH_PRECISIONS:
        raise UserError(
            f"Expected a precision of {', '.join(SEARCH_PRECISIONS[:-1])} or "
            f"{SEARCH_PRECISIONS[-1]}, received {precision!r}."
        )


def freeze(
    models: Ensemble, precision: str, portable: bool
) -> tuple[Ensemble, FrozenWeights | None]:
    """Prepare models and weights that no longer change, as `Translator` says.

    Returns:
        The models that compute in `precision`, and their packed weights where
        this TensorFlow has the operators.

    Raises:
        UserError: As in `Translator.freeze`.
    """
    check_precision(precision)
    for model in models.models:
        if isinstance(model, Transformer):
            continue
        if precision != "float32":
            raise UserError(
                f"Expected a Transformer to compute in {precision}, received "
                f"{type(model).__name__}; choose float32, or export the "
                "weights in float16."
            )
        return models, None
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    packs = can_pack() and not on_gpu and not portable
    if precision == "int8" and not packs:
        raise UserError(
            "Expected a TensorFlow for x86-64 processors without a GPU, since "
            "int8 needs its operators, found another or `portable`; choose "
            "float32 or bfloat16."
        )
    devices.warn_of_slow(precision)
    if precision == "bfloat16":
        copies = [_in_bfloat16(model) for model in models.models]
        models = Ensemble(copies, models.mean)
    if not packs:
        return models, None
    return models, FrozenWeights(models, int8=precision == "int8")


def _in_bfloat16(model: Transformer) -> Transformer:
    """Copy a model to one that computes in bfloat16."""
    settings = {**model.get_config(), "dtype": "bfloat16"}
    try:
        copy = type(model).from_config(settings)
        copy.set_weights(model.get_weights())
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Expected {type(model).__name__} to be made again from its "
            f"`get_config`, which failed ({error}); add to `get_config` what "
            "its constructor takes, or choose float32."
        ) from error
    return copy
