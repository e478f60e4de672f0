"""Chooses the batching of a run, fixed at its first start."""

import dataclasses
import logging

import tensorflow as tf

from keras_transformer.config import TrainingConfig
from keras_transformer.data.batch_plan import (
    LENGTH_GROWTH,
    XLA_LENGTH_GROWTH,
    BatchPlan,
)
from keras_transformer.data.bpe_dropout import AnyCorpus, ResegmentedCorpus
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs.run_config import RunConfig

logger = logging.getLogger("keras_transformer")


def compiles(xla: str) -> bool:
    """Return whether XLA compiles the gradient for a setting of `xla`."""
    if xla == "auto":
        return bool(tf.config.list_logical_devices("GPU"))
    return xla == "on"


def choose_lengths(run: RunConfig, xla: bool) -> RunConfig:
    """Fill in `length_growth` of a run that begins, if it is not given.

    XLA compiles every shape of a batch, so it gets fewer of them. Batches must
    not change in the middle of a run.
    """
    if run.training.length_growth is not None:
        return run
    growth = XLA_LENGTH_GROWTH if xla else LENGTH_GROWTH
    recipe = dataclasses.replace(run.training, length_growth=growth)
    return dataclasses.replace(run, training=recipe)


def warn_of_warm_up(recipe: TrainingConfig, steps: int) -> None:
    """Warn if a training ends while its rate still rises (5.3)."""
    if steps < recipe.warmup_steps:
        logger.warning(
            "%d updates end inside the warm-up of %d, where the learning rate "
            "still rises: lower `warmup_steps`, or train for longer.",
            steps,
            recipe.warmup_steps,
        )


def plan_batches(
    corpus: TokenisedCorpus, recipe: TrainingConfig, tokenizer: Tokenizer
) -> BatchPlan:
    """Plan the training batches of a recipe.

    Raises:
        UserError: If BPE-dropout is asked for, but the vocabulary is not one
            of byte-pair encoding.
    """
    planned: AnyCorpus = corpus
    if recipe.bpe_dropout:
        planned = ResegmentedCorpus(
            corpus,
            tokenizer,
            recipe.bpe_dropout,
            recipe.seed,
            recipe.max_length,
        )
    return BatchPlan(
        planned,
        recipe.batch_tokens,
        recipe.seed,
        length_growth=recipe.length_growth or LENGTH_GROWTH,
    )
