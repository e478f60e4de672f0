"""The batches of a run: their plan is chosen when it begins, and kept."""

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
from keras_transformer.training.request import XLA

logger = logging.getLogger("keras_transformer")


def compiles(xla: str) -> bool:
    """Whether XLA compiles the gradient, for a choice among `session.XLA`."""
    chosen = XLA[xla]
    if chosen == "auto":
        return bool(tf.config.list_logical_devices("GPU"))
    return bool(chosen)


def choose_lengths(
    run: RunConfig, begun: RunConfig | None, xla: bool
) -> RunConfig:
    """Fill in how far the lengths of batches lie apart, where nobody says.

    XLA compiles every shape of a batch, so that it gets fewer of them. Batches
    are not to change in the midst of a run: where it has begun, it keeps what
    was chosen, whatever the session.

    Args:
        run: What is asked for.
        begun: What it goes on with, if it has begun.
        xla: Whether XLA compiles in this session.
    """
    growth = run.training.length_growth
    if growth is None and begun:
        growth = begun.training.length_growth
    elif growth is None:
        growth = XLA_LENGTH_GROWTH if xla else LENGTH_GROWTH
    recipe = dataclasses.replace(run.training, length_growth=growth)
    return dataclasses.replace(run, training=recipe)


def warn_of_warm_up(recipe: TrainingConfig, steps: int) -> None:
    """Say so where a training ends while its rate still rises (5.3)."""
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
    """The training batches of a recipe.

    Args:
        corpus: The records.
        recipe: The recipe.
        tokenizer: Their vocabulary.

    Raises:
        UserError: If BPE-dropout is asked for of a vocabulary that is not of
            byte-pair encoding.
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
