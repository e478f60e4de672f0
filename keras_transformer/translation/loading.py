"""Loads the models of one or several runs, and freezes their weights."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.decoding.frozen_weights import FrozenWeights, can_pack
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import load_vocabulary
from keras_transformer.runs.weights import Runs, Weights


def load(runs: Runs, weights: Weights) -> dict[str, Any]:
    """Load one or several runs; return the arguments of their `Translator`.

    Raises:
        UserError: If one has no weights, its vocabulary is not that of its
            model, or not that of the first run, or as from `lexicon.read`.
    """
    first, run = runs[0]
    tokenizer = load_vocabulary(first, run)
    models: list[Transformer] = []
    chosen = []
    for path, config in runs:
        own = load_vocabulary(path, config) if models else tokenizer
        if own.model != tokenizer.model:
            raise UserError(
                f"Expected runs of one vocabulary, but that of {path} is "
                f"not that of {first}; train it with --tokenizer "
                f"{first / TOKENIZER_FILE}."
            )
        model, taken = averaging.load(path, weights.average, config)
        if model.vocab_size != own.vocab_size:
            raise UserError(
                f"Expected {model.vocab_size} pieces in {path}/"
                f"{TOKENIZER_FILE} as in the model, found {own.vocab_size}; "
                "restore the file of this run."
            )
        models.append(model)
        chosen.append(taken)
    words = None
    if weights.shortlist:
        from keras_transformer.translation import lexicon

        words = lexicon.read(weights.shortlist, tokenizer)
    searching, frozen = freeze(models, weights.precision)
    return dict(
        model=searching,
        tokenizer=tokenizer,
        search=run.search,
        source_lang=run.source_lang,
        target_lang=run.target_lang,
        frozen=frozen,
        shortlist=words,
        weights=dataclasses.replace(weights, chosen=tuple(chosen)),
    )


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
