"""Loads the models of one or several runs."""

import dataclasses

from keras_transformer.config import UserError
from keras_transformer.decoding.frozen_weights import freeze
from keras_transformer.machine import devices
from keras_transformer.runs import averaging
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.runs.run_config import load_vocabulary
from keras_transformer.runs.weights import Runs, Weights
from keras_transformer.translation.translator import Translator


def load(runs: Runs, weights: Weights) -> Translator:
    """Load one run, or several that search together as the first does."""
    devices.let_memory_grow()  # A training may run on the same GPU.
    first, run = runs[0]
    tokenizer = load_vocabulary(first, run)
    for path, config in runs[1:]:
        if load_vocabulary(path, config).model != tokenizer.model:
            raise UserError(
                f"Expected runs of one vocabulary, but that of {path} is "
                f"not that of {first}; train it with --tokenizer "
                f"{first / TOKENIZER_FILE}."
            )
    words = None
    if weights.shortlist:  # A wrong one shows before the weights are loaded.
        from keras_transformer.translation import lexicon

        words = lexicon.read(weights.shortlist, tokenizer)
    loaded = [averaging.load(path, weights.average, its) for path, its in runs]
    models, frozen = freeze([model for model, _ in loaded], weights.precision)
    chosen = tuple(taken for _, taken in loaded)
    weights = dataclasses.replace(weights, chosen=chosen)
    sides = run.source_lang, run.target_lang
    return Translator(
        models, tokenizer, run.search, *sides, frozen, words, weights
    )
