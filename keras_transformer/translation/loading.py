"""Loads the models of one or several runs, and freezes their weights."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.frozen_weights import FrozenWeights, can_pack
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import RunConfig, load_vocabulary
from keras_transformer.runs.weights import Chosen, Runs, Weights
from keras_transformer.translation import lexicon


def load(runs: Runs, weights: Weights) -> dict[str, Any]:
    """Load one or several runs; return the arguments of their `Translator`.

    Raises:
        UserError: If one has no checkpoint, its vocabulary is not that of its
            model, or not that of the first run, or as from `lexicon.read`.
    """
    models, tokenizers, chosen = zip(
        *(_load(path, run, weights.average) for path, run in runs), strict=True
    )
    for (path, _), tokenizer in zip(runs, tokenizers, strict=True):
        if tokenizer.model != tokenizers[0].model:
            first = runs[0][0]
            raise UserError(
                f"Expected runs of one vocabulary, but that of {path} is "
                f"not that of {first}; train it with --tokenizer "
                f"{first / TOKENIZER_FILE}."
            )
    words = None
    if weights.shortlist:
        words = lexicon.read(weights.shortlist, tokenizers[0])
    model, frozen = freeze(models, weights.precision)
    run = runs[0][1]
    return dict(
        model=model,
        tokenizer=tokenizers[0],
        search=run.search,
        source_lang=run.source_lang,
        target_lang=run.target_lang,
        frozen=frozen,
        shortlist=words,
        weights=dataclasses.replace(weights, chosen=chosen),
    )


def _load(
    run_dir: pathlib.Path, run: RunConfig, average: int | None
) -> tuple[Transformer, Tokenizer, Chosen]:
    model, chosen = averaging.load(run_dir, average, run)
    tokenizer = load_vocabulary(run_dir, run)
    if model.vocab_size != tokenizer.vocab_size:
        raise UserError(
            f"Expected {model.vocab_size} pieces in {run_dir}/"
            f"{TOKENIZER_FILE} as in the model, found "
            f"{tokenizer.vocab_size}; restore the file of this run."
        )
    return model, tokenizer, chosen


def freeze(
    models: Sequence[Any], precision: str, portable: bool = False
) -> tuple[Sequence[Any], FrozenWeights | None]:
    """Freeze models, as `Translator.freeze` says.

    Returns:
        The models that compute in `precision`, one of `SEARCH_PRECISIONS`, and
        their packed weights where this TensorFlow has the operators.
    """
    for model in models:
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
    wanted = "bfloat16" if precision == "bfloat16" else "float32"
    models = [
        model
        if (model.compute_dtype == "bfloat16") == (wanted == "bfloat16")
        else _computing_in(wanted, model)
        for model in models
    ]
    if not packs:
        return models, None
    return models, FrozenWeights(*models, int8=precision == "int8")


def _computing_in(dtype: str, model: Transformer) -> Transformer:
    """Copy a model to one that computes in another type."""
    settings = {**model.get_config(), "dtype": dtype}
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
