"""Estimates a training's costs from the head of its corpus and a few steps.

All of the corpus is read once, to tell what to clean in it.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import functools
import itertools
import logging
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import config
from keras_transformer.config import UserError
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.data.inspection import Inspection, Row
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import devices
from keras_transformer.runs.layout import has_begun
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import estimates, workers
from keras_transformer.training.building import build_model
from keras_transformer.training.cluster import count_workers
from keras_transformer.training.display import heartbeat
from keras_transformer.training.planning import (
    choose_lengths,
    compiles,
    plan_batches,
    warn_of_warm_up,
)
from keras_transformer.training.preparation import (
    check_beginning,
    prepare_tokenizer,
)
from keras_transformer.training.request import Asked, Session

logger = logging.getLogger("keras_transformer")
HEAD_PAIRS = 20_000
HEAD = "head"  # Where their records are.
# A few thousand tokens would fill a handful of batches and pad them more than
# a real corpus, so the head's lengths are planned as if they came this often.
REPEATS = 50
MEASURED_STEPS = 3
# Without a GPU a step of the paper's batch takes a minute and more.
MOST_FLOPS_WITHOUT_GPU = 4e11
# Section 5.2 and table 2: days on eight P100, at 9.5 TFLOPS each.
PAPER_FLOPS = {"base": 3.3e18, "big": 2.3e19, "big-en-fr": 2.3e19}


class Table(str):
    """Text that a notebook shows as `print` does."""

    def __repr__(self) -> str:
        return str(self)


class Costs(NamedTuple):
    """Means over the batches of an epoch, and the largest of them."""

    source_tokens: float  # Of a step, without padding.
    target_tokens: float
    flops: float  # Of a step, with padding.
    largest: tuple[int, int, int]  # (B, S, T) of a replica's largest batch.
    memory: estimates.Memory  # What that needs.
    graphs: int  # Shapes of a replica's micro-batches; XLA would compile each.


class Measured(NamedTuple):
    """Steps of one shape (B, S, T) over all replicas, and their median time.

    `whole` says whether B is that of the training's batches.
    """

    shape: tuple[int, int, int]
    whole: bool
    seconds: float


def dry_run(asked: Asked) -> Table:
    """Tell what a run would cost, writing nothing to its directory.

    Raises:
        UserError: If the training could not begin, or needs several machines.
    """
    run, session = asked.run, asked.session
    if session.strategy == "multiworker" or count_workers() > 1:
        raise UserError(
            "Expected one machine for a dry run, received `strategy` "
            "multiworker or several workers in TF_CONFIG; leave them out."
        )
    check_beginning(asked)
    devices.log_devices()
    strategy = workers.make_strategy(session.strategy)
    xla = compiles(session.xla)
    corpus = asked.open_text()
    looking = Inspection(corpus)
    with heartbeat("Looking through the text"):
        for _ in looking.watch(corpus.pairs(run.train_split)):
            pass
    corpus = head(corpus)
    replicas = strategy.num_replicas_in_sync
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        has_run = has_begun(asked.run_dir)
        if not has_run:
            run = choose_lengths(run, xla)
        asked = asked._replace(run=run)
        run, vocabulary = prepare_tokenizer(asked, folder, corpus)
        plan, is_whole = make_plan(run, corpus, vocabulary, folder)
        if not (has_run or is_whole):  # The rest will fill the vocabulary.
            model = dataclasses.replace(
                run.model, vocab_size=run.requested_vocab_size
            )
            run = dataclasses.replace(run, model=model)
        costs = count(run, plan, replicas, session.accumulate)
        with strategy.scope():
            model = build_model(run, session)
        measured = measure(model, run, plan, costs.flops, replicas)
        of_text = looking.findings().rows(
            TokenisedCorpus.load(folder / HEAD),
            vocabulary,
            run.training.max_length,
        )
    warn_of_warm_up(run.training, run.training.steps)
    return Table(
        report(run, plan, costs, measured, session, replicas, xla, of_text)
    )


def head(corpus: Corpus) -> Corpus:
    """Cut each split of the corpus soon after `HEAD_PAIRS`."""

    def cut(read: Callable[[str], Iterator[Pair]], split: str) -> Iterator:
        # One more pair shows whether there are others.
        return itertools.islice(read(split), HEAD_PAIRS + 1)

    read = functools.partial(cut, corpus.read)
    return dataclasses.replace(
        corpus,
        read=read,
        read_whole=functools.partial(cut, corpus.read_whole or corpus.read),
    )


def make_plan(
    run: RunConfig,
    corpus: Corpus,
    tokenizer: Tokenizer,
    folder: pathlib.Path,
) -> tuple[BatchPlan, bool]:
    """Plan the batches of a corpus from its `head`, with records in a folder.

    Returns:
        The plan, and whether the head is the whole corpus.

    Raises:
        UserError: If no pair is left to train on.
    """
    logger.info("Tokenising up to %s pairs.", f"{HEAD_PAIRS:,}")
    records = TokenisedCorpus.build(
        corpus.pairs(run.train_split),
        tokenizer,
        folder / HEAD,
        run.training.max_length,
    )
    whole = len(records) + records.dropped + records.empty <= HEAD_PAIRS
    if not whole:
        source, target = (
            side._replace(
                lengths=np.tile(side.lengths, REPEATS),
                starts=np.tile(side.starts, REPEATS),
            )
            for side in (records.source, records.target)
        )
        records = TokenisedCorpus(source, target)
    logger.info("Planning the batches.")
    return plan_batches(records, run.training, tokenizer), whole


def count(
    run: RunConfig,
    plan: BatchPlan,
    replicas: int = 1,
    accumulate: int = 1,
) -> Costs:
    """Count what the steps of an epoch cost, from their shapes."""

    def of_replica(shape: tuple[int, int, int]) -> tuple[int, int, int]:
        rows, source_length, target_length = shape
        return -(-rows // replicas), source_length, target_length

    def memory(shape: tuple[int, int, int]) -> estimates.Memory:
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
    micro_batches = {
        (-(-rows // accumulate), source_length, target_length)
        for rows, source_length, target_length in map(of_replica, plan.shapes())
    }
    source_tokens, target_tokens = plan.corpus.num_tokens
    return Costs(
        source_tokens / len(plan),
        target_tokens / len(plan),
        statistics.fmean(flops),
        of_replica(largest),
        memory(largest),
        len(micro_batches),
    )


def measure(
    model: keras.Model,
    run: RunConfig,
    plan: BatchPlan,
    mean_flops: float,
    replicas: int = 1,
) -> Measured:
    """Time training steps of the plan's shape nearest to the mean step.

    Its rows are a multiple of the replicas.
    """

    def flops(shape: tuple[int, int, int]) -> int:
        return estimates.step_flops(run.model, *shape)

    shape = min(plan.shapes(), key=lambda s: abs(flops(s) - mean_flops))
    full, source_length, target_length = rows, *_ = shape
    if not tf.config.list_logical_devices("GPU"):
        share = min(1.0, MOST_FLOPS_WITHOUT_GPU / flops(shape))
        rows = max(replicas, int(rows * share) // replicas * replicas)
    source, target_in, target = (
        np.random.default_rng(run.training.seed).integers(
            config.EOS_ID + 1, run.model.vocab_size, (rows, length), np.int32
        )
        for length in (source_length, target_length, target_length)
    )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_tensors(((source, target_in), target))
    dataset = dataset.repeat().with_options(options)
    dataset.has_begin_tokens = True  # Any will do.
    ends: list[float] = []

    def note(batch: int, logs: Any) -> None:
        float(logs["loss"])  # Waits for the step.
        ends.append(time.perf_counter())

    logger.info(
        "Measuring steps of %d rows with %d source and %d target tokens; the "
        "first one builds the graph.",
        rows,
        source_length,
        target_length,
    )
    model.fit(
        dataset,
        steps_per_epoch=1 + MEASURED_STEPS,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=note)],
    )
    seconds = statistics.median(map(float, np.diff(ends)))
    shape = (rows, source_length, target_length)
    return Measured(shape, rows == full, seconds)


def report(
    run: RunConfig,
    plan: BatchPlan,
    costs: Costs,
    measured: Measured,
    session: Session,
    replicas: int = 1,
    xla: bool = False,
    of_text: Iterable[Row] = (),
) -> str:
    """Write the table that the user reads; `of_text` are its last rows."""
    model, recipe = run.model, run.training
    # This also scales costs that do not depend on the rows, such as Adam's.
    share = costs.flops / estimates.step_flops(model, *measured.shape)
    seconds = measured.seconds * share
    steps = recipe.steps
    if session.minutes:
        steps = int(min(steps, max(1, 60 * session.minutes / seconds)))
    hours = seconds * steps / 3600
    shape = "{} rows × {} source × {} target tokens".format
    memory = zip(
        ("weights", "gradients", "Adam's moments", "activations")
        + ("logits and gradient", "in all"),
        (*costs.memory, costs.memory.total),
        strict=True,
    )
    rows: list[Row | None] = [
        f"{run.preset} on {run.corpus}: {recipe.precision}, replicas: "
        f"{replicas}, micro-batches: {session.accumulate}",
        ("vocabulary", f"{model.vocab_size:,}", "pieces"),
        ("parameters", f"{estimates.parameters(model):,}", ""),
        ("restriction", f"{model.restriction:,}", "positions")
        if model.restriction
        else None,
        "",
        "A step, the mean of an epoch",
        ("source tokens", f"{costs.source_tokens:,.0f}", "without padding"),
        ("target tokens", f"{costs.target_tokens:,.0f}", "without padding"),
        ("padding", f"{100 * plan.padding_waste():.1f}", "% of positions"),
        ("batch shapes", f"{len(plan.shapes()):,}", ""),
        ("XLA compilations", f"{costs.graphs:,}", "at their first steps")
        if xla
        else None,
        ("FLOPs", f"{costs.flops:.2e}", "matrix products, padding included"),
        "",
        f"Memory of a replica at most, at {shape(*costs.largest)}, estimated",
        *((name, f"{size / 1e6:,.0f}", "MB") for name, size in memory),
        "",
        f"Time, from {MEASURED_STEPS} steps of {shape(*measured.shape)}"
        + ("" if measured.whole else ", scaled by FLOPs: at most"),
        ("seconds a step", f"{seconds:.3g}", ""),
        ("target tokens/s", f"{costs.target_tokens / seconds:,.0f}", ""),
        ("FLOPs/s", f"{costs.flops / seconds:.2e}", ""),
        "",
        f"The whole training, {steps:,} steps"
        + (f" in {session.minutes:g} minutes" if steps < recipe.steps else ""),
        ("hours", f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}", ""),
        ("FLOPs", f"{costs.flops * steps:.2e}", "counted from shapes"),
        ("the paper's", f"{paper:.1e}", "GPUs × seconds × 9.5 TFLOPS")
        if (paper := PAPER_FLOPS.get(run.preset))
        else None,
        "",
        *of_text,
    ]
    return "\n".join(
        row
        if isinstance(row, str)
        else "  {:<20}{:>14}  {}".format(*row).rstrip()
        for row in rows
        if row is not None
    )
