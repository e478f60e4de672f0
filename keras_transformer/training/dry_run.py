"""Estimates a training's costs from the head of its corpus and a few steps.

All of the corpus is read once, to tell what to clean in it.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import itertools
import logging
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, UserError
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.data.inspection import Inspection, Row
from keras_transformer.data.records import Side, TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import devices, exhaustion
from keras_transformer.model import Transformer
from keras_transformer.runs.layout import has_begun
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import estimates, workers
from keras_transformer.training.building import (
    build_model,
    choose_lengths,
    compiles,
    plan_batches,
    warn_of_warm_up,
)
from keras_transformer.training.display import heartbeat
from keras_transformer.training.preparation import (
    check_beginning,
    prepare_vocabulary,
)
from keras_transformer.training.request import Session

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

Shape = tuple[int, int, int]  # (B, S, T)


class Table(str):
    """Text that a notebook shows as `print` does."""

    def __repr__(self) -> str:
        return str(self)


class Costs(NamedTuple):
    """Means over the batches of an epoch, and the largest of them."""

    source_tokens: float  # Of a step, without padding.
    target_tokens: float
    flops: float  # Of a step, with padding.
    largest: Shape  # A replica's largest batch.
    memory: estimates.Memory  # What that needs.
    graphs: int  # Shapes of a replica's micro-batches; XLA would compile each.


def dry_run(session: Session) -> Table:
    """Tell what a run would cost, writing nothing to its directory.

    Raises:
        UserError: If the training could not begin, or needs several machines.
        JobError: If memory or disk is full.
    """
    with exhaustion.explained(session.less_memory):
        return _dry_run(session)


def _dry_run(session: Session) -> Table:
    if session.strategy == "multiworker" or workers.count_workers() > 1:
        raise UserError(
            "Expected one machine for a dry run, received `strategy` "
            "multiworker or several workers in TF_CONFIG; leave them out."
        )
    check_beginning(session)
    devices.let_memory_grow()
    devices.log_devices()
    strategy = workers.make_strategy(session.strategy)
    replicas = strategy.num_replicas_in_sync
    xla = compiles(session.xla)
    run, corpus = session.run, session.open_text()
    looking = Inspection(corpus)
    with heartbeat("Looking through the text"):
        for _ in looking.watch(corpus.pairs(run.train_split)):
            pass
    has_run = has_begun(session.run_dir)
    if not has_run:
        run = choose_lengths(run, xla)
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = pathlib.Path(name), head(corpus)
        run, vocabulary = prepare_vocabulary(
            dataclasses.replace(session, run=run), folder, corpus
        )
        plan, is_whole = make_plan(run, corpus, vocabulary, folder)
        if not (has_run or is_whole):  # The rest will fill the vocabulary.
            model = dataclasses.replace(
                run.model, vocab_size=run.requested_vocab_size
            )
            run = dataclasses.replace(run, model=model)
        session = dataclasses.replace(session, run=run)
        costs = count(session, plan, replicas)
        with strategy.scope():
            built = build_model(session)
        measured = measure(built, plan, costs.flops, replicas)
        of_text = looking.findings().rows(
            TokenisedCorpus.load(folder / HEAD),
            vocabulary,
            run.training.max_length,
        )
    warn_of_warm_up(run.training, run.training.steps)
    return report(session, plan, costs, *measured, replicas, xla, of_text)


def head(corpus: Corpus) -> Corpus:
    """Cut each split of the corpus soon after `HEAD_PAIRS`."""
    whole = corpus.read_whole or corpus.read

    def cut(pairs: Iterator[Pair]) -> Iterator[Pair]:
        # One more pair shows whether there are others.
        return itertools.islice(pairs, HEAD_PAIRS + 1)

    return dataclasses.replace(
        corpus,
        read=lambda split: cut(corpus.read(split)),
        read_whole=lambda split: cut(whole(split)),
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

    def repeated(side: Side) -> Side:
        lengths, starts = (
            np.tile(x, REPEATS) for x in (side.lengths, side.starts)
        )
        return side._replace(lengths=lengths, starts=starts)

    if not whole:
        records = TokenisedCorpus(
            repeated(records.source), repeated(records.target)
        )
    logger.info("Planning the batches.")
    return plan_batches(records, run.training), whole


def count(session: Session, plan: BatchPlan, replicas: int = 1) -> Costs:
    """Count what the steps of an epoch cost, from their shapes."""
    model, recipe = session.run.model, session.run.training

    def shared(shapes: Iterable[Shape], parts: int) -> set[Shape]:
        return {(-(-rows // parts), s, t) for rows, s, t in shapes}

    memory = {
        shape: estimates.memory(
            *(model, *shape, recipe.precision, session.accumulate)
        )
        for shape in shared(plan.shapes(), replicas)
    }
    largest = max(memory, key=lambda shape: memory[shape].total)
    flops = [
        estimates.step_flops(model, *plan.shape(step))
        for step in range(len(plan))
    ]
    source_tokens, target_tokens = plan.corpus.num_tokens
    return Costs(
        source_tokens / len(plan),
        target_tokens / len(plan),
        statistics.fmean(flops),
        largest,
        memory[largest],
        len(shared(memory, session.accumulate)),
    )


def measure(
    model: Transformer, plan: BatchPlan, mean_flops: float, replicas: int = 1
) -> tuple[Shape, float]:
    """Time training steps of the plan's shape nearest to the mean step.

    Returns:
        The shape over all replicas, with fewer rows if those would take long,
        and the median of the seconds.
    """

    def flops(shape: Shape) -> int:
        return estimates.step_flops(model.model_config, *shape)

    shape = min(plan.shapes(), key=lambda s: abs(flops(s) - mean_flops))
    rows, source_length, target_length = shape
    if not tf.config.list_logical_devices("GPU"):
        share = min(1.0, MOST_FLOPS_WITHOUT_GPU / flops(shape))
        rows = max(replicas, int(rows * share) // replicas * replicas)
    random = np.random.default_rng(1)
    source, target_in, target = (
        random.integers(
            EOS_ID + 1, model.model_config.vocab_size, (rows, length), np.int32
        )
        for length in (source_length, target_length, target_length)
    )
    dataset = tf.data.Dataset.from_tensors(((source, target_in), target))
    dataset = dataset.repeat(1 + MEASURED_STEPS)
    dataset.has_begin_tokens = True  # Any will do.
    ends: list[float] = []

    def note(batch: int, logs: Any) -> None:
        float(logs["loss"])  # Waits for the step.
        ends.append(time.perf_counter())

    logger.info(
        "Measuring steps of %d rows with %d source and %d target tokens; the "
        "first one builds the graph.",
        *(rows, source_length, target_length),
    )
    model.fit(
        dataset,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=note)],
    )
    seconds = statistics.median(map(float, np.diff(ends)))
    return (rows, source_length, target_length), seconds


def report(
    session: Session,
    plan: BatchPlan,
    costs: Costs,
    measured: Shape,
    seconds: float,
    replicas: int = 1,
    xla: bool = False,
    of_text: Iterable[Row] = (),
) -> Table:
    """Write the table that the user reads; `of_text` are its last rows.

    A step of the shape that was `measured` took so many seconds.
    """
    run, model, recipe = session.run, session.run.model, session.run.training
    # This also scales costs that do not depend on the rows, such as Adam's.
    seconds *= costs.flops / estimates.step_flops(model, *measured)
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
        f"Time, from {MEASURED_STEPS} steps of {shape(*measured)}"
        + ("" if measured in plan.shapes() else ", scaled by FLOPs: at most"),
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
    return Table(
        "\n".join(
            row
            if isinstance(row, str)
            else "  {:<20}{:>14}  {}".format(*row).rstrip()
            for row in rows
            if row is not None
        )
    )
