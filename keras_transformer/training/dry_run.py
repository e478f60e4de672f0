"""What a training would cost, from the head of its corpus and a few steps.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import itertools
import logging
import pathlib
import statistics
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import config
from keras_transformer.data import batching, corpora
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs import run_config
from keras_transformer.training import estimates

logger = logging.getLogger("keras_transformer")

HEAD_PAIRS = 20_000
# A few thousand tokens would fill a handful of batches and pad them more than
# a real corpus: the head's lengths are planned as if they came this often.
REPEATS = 50
MEASURED_STEPS = 3
# Without a GPU a step of the paper's batch takes a minute and more.
MOST_FLOPS_WITHOUT_GPU = 4e11
# Section 5.2 and table 2: days on eight P100, at 9.5 TFLOPS each.
PAPER_FLOPS = {"base": 3.3e18, "big": 2.3e19, "big-en-fr": 2.3e19}


class Costs(NamedTuple):
    """Means over the batches of an epoch, and the largest of them.

    Attributes:
        source_tokens: Source tokens of a step, without padding.
        target_tokens: Target tokens of a step, without padding.
        flops: FLOPs of a step, padding included.
        largest: The (B, S, T) of one replica that needs most memory.
        memory: What it needs.
    """

    source_tokens: float
    target_tokens: float
    flops: float
    largest: tuple[int, int, int]
    memory: estimates.Memory


class Measured(NamedTuple):
    """A few training steps of one shape.

    Attributes:
        shape: Its (B, S, T) over all replicas.
        whole: Whether B is that of the training's batches.
        seconds: Median of the steps after the first.
    """

    shape: tuple[int, int, int]
    whole: bool
    seconds: float


def head(corpus: corpora.Corpus) -> corpora.Corpus:
    """The same corpus, as if each split ended after `HEAD_PAIRS`."""
    return dataclasses.replace(
        corpus,
        read=lambda split: itertools.islice(corpus.read(split), HEAD_PAIRS),
    )


def make_plan(
    run: run_config.RunConfig,
    corpus: corpora.Corpus,
    tokenizer: Tokenizer,
    folder: pathlib.Path,
) -> tuple[batching.BatchPlan, bool]:
    """Plan the batches of a corpus with the head's lengths.

    Args:
        run: The configuration.
        corpus: As from `head`.
        tokenizer: Its vocabulary.
        folder: Where records may be written.

    Returns:
        The plan, and whether the head is the whole corpus.

    Raises:
        UserError: If no pair is left to train on.
    """
    logger.info("Tokenising up to %s pairs.", f"{HEAD_PAIRS:,}")
    records = TokenisedCorpus.build(
        corpus.pairs(run.train_split),
        tokenizer,
        folder / "records",
        run.training.max_length,
    )
    whole = len(records) + records.dropped + records.empty < HEAD_PAIRS
    if not whole:
        records = TokenisedCorpus(
            *(
                side._replace(
                    lengths=np.tile(side.lengths, REPEATS),
                    starts=np.tile(side.starts, REPEATS),
                )
                for side in (records.source, records.target)
            )
        )
    logger.info("Planning the batches.")
    recipe = run.training
    plan = batching.BatchPlan(records, recipe.batch_tokens, recipe.seed)
    return plan, whole


def count(
    run: run_config.RunConfig,
    plan: batching.BatchPlan,
    replicas: int = 1,
    accumulate: int = 1,
) -> Costs:
    """Count what the steps of an epoch cost, from their shapes."""

    def of_replica(shape):
        rows, source_length, target_length = shape
        return -(-rows // replicas), source_length, target_length

    def memory(shape):
        return estimates.memory(
            run.model,
            *of_replica(shape),
            run.training.precision,
            accumulate,
            run.training.ema is not None,
        )

    flops = [
        estimates.step_flops(
            run.model, len(batch.rows), batch.source_length, batch.target_length
        )
        for batch in plan.epoch(0)
    ]
    largest = max(plan.shapes(), key=lambda shape: memory(shape).total)
    return Costs(
        float(plan.corpus.source_lengths.sum(dtype=np.int64) / len(plan)),
        float(plan.corpus.target_lengths.sum(dtype=np.int64) / len(plan)),
        statistics.fmean(flops),
        of_replica(largest),
        memory(largest),
    )


class _StepTimes(keras.callbacks.Callback):
    """Notes when each step was over; a loss that is read is a step done."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch, logs=None):
        float(logs["loss"])
        self.ends.append(time.perf_counter())
        logger.info("Measured step %d of %d.", batch + 1, 1 + MEASURED_STEPS)


def measure(
    model: keras.Model,
    run: run_config.RunConfig,
    plan: batching.BatchPlan,
    mean_flops: float,
    replicas: int = 1,
) -> Measured:
    """Time training steps of the shape nearest the mean step.

    Args:
        model: Compiled, as it would train.
        run: The configuration.
        plan: Whose shape is taken.
        mean_flops: FLOPs of the mean step.
        replicas: The rows are a multiple of it.
    """

    def flops(shape):
        return estimates.step_flops(run.model, *shape)

    shape = min(plan.shapes(), key=lambda s: abs(flops(s) - mean_flops))
    rows, *lengths = shape
    if not tf.config.list_logical_devices("GPU"):
        share = min(1.0, MOST_FLOPS_WITHOUT_GPU / flops(shape))
        rows = max(replicas, int(rows * share) // replicas * replicas)
    source, target_in, target = (
        np.random.default_rng(run.training.seed).integers(
            config.EOS_ID + 1, run.model.vocab_size, (rows, length), np.int32
        )
        for length in (*lengths, lengths[1])
    )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    dataset = tf.data.Dataset.from_tensors(((source, target_in), target))
    times = _StepTimes()
    logger.info(
        "Measuring steps of %d rows with %d source and %d target tokens; the "
        "first one builds the graph.",
        rows,
        *lengths,
    )
    model.fit(
        dataset.repeat().with_options(options),
        steps_per_epoch=1 + MEASURED_STEPS,
        shuffle=False,
        verbose=0,
        callbacks=[times],
    )
    seconds = statistics.median(map(float, np.diff(times.ends)))
    return Measured((rows, *lengths), rows == shape[0], seconds)


def report(
    run: run_config.RunConfig,
    plan: batching.BatchPlan,
    costs: Costs,
    measured: Measured,
    replicas: int = 1,
    accumulate: int = 1,
) -> str:
    """Write the table that the user reads."""
    model, recipe = run.model, run.training
    # What a step costs whatever its rows, such as Adam, is scaled too.
    share = costs.flops / estimates.step_flops(model, *measured.shape)
    seconds = measured.seconds * share
    hours = seconds * recipe.steps / 3600
    total = costs.flops * recipe.steps
    paper = PAPER_FLOPS.get(run.preset)
    shape = "{} rows × {} source × {} target tokens".format
    rows = [
        f"{run.preset} on {run.corpus}: {recipe.precision}, replicas: "
        f"{replicas}, micro-batches: {accumulate}",
        ("vocabulary", f"{model.vocab_size:,}", "pieces"),
        ("parameters", f"{estimates.parameters(model):,}", ""),
        "",
        "A step, the mean of an epoch",
        ("source tokens", f"{costs.source_tokens:,.0f}", "without padding"),
        ("target tokens", f"{costs.target_tokens:,.0f}", "without padding"),
        ("padding", f"{100 * plan.padding_waste():.1f}", "% of positions"),
        ("batch shapes", f"{len(plan.shapes()):,}", ""),
        ("FLOPs", f"{costs.flops:.2e}", "matrix products, padding included"),
        "",
        f"Memory of a replica at most, at {shape(*costs.largest)}, estimated",
        *(
            (name, f"{size / 1e6:,.0f}", "MB")
            for name, size in zip(
                (
                    "weights",
                    "gradients",
                    "Adam's moments",
                    "activations",
                    "logits and gradient",
                    "in all",
                ),
                (*costs.memory, costs.memory.total),
                strict=True,
            )
        ),
        "",
        f"Time, from {MEASURED_STEPS} steps of {shape(*measured.shape)}"
        + ("" if measured.whole else ", scaled by FLOPs: at most"),
        ("seconds a step", f"{seconds:.3g}", ""),
        ("target tokens/s", f"{costs.target_tokens / seconds:,.0f}", ""),
        ("FLOPs/s", f"{costs.flops / seconds:.2e}", ""),
        "",
        f"The whole training, {recipe.steps:,} steps",
        ("hours", f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}", ""),
        ("FLOPs", f"{total:.2e}", "counted from shapes"),
    ]
    if paper:
        rows.append(
            ("the paper's", f"{paper:.1e}", "GPUs × seconds × 9.5 TFLOPS")
        )
    return "\n".join(
        row
        if isinstance(row, str)
        else "  {:<20}{:>14}  {}".format(*row).rstrip()
        for row in rows
    )
