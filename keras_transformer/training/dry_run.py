"""Measures what a training would cost: tokens, time and memory.

Axes: B rows of a batch, S source length, T target length.
"""

import dataclasses
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import EOS_ID, UserError, logger
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.inspection import Inspection, Row
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.texts import Pair
from keras_transformer.machine import devices
from keras_transformer.model import Transformer
from keras_transformer.training import building, preparation, request, workers
from keras_transformer.training.display import heartbeat, warn_of_warm_up
from keras_transformer.training.request import Session

# A hundred of the paper's batches, about as full as those of all pairs.
HEAD_PAIRS = 100_000
MEASURED_STEPS = 3
# Parameters times positions that two cores take seconds for, not minutes.
MOST_WITHOUT_GPU = 1e11

Shape = tuple[int, int, int]  # (B, S, T)


def dry_run(run_dir: str | os.PathLike | None = None, **settings: Any) -> str:
    """Tell what a training would cost, in time and memory, and train nothing.

    It reads the corpus once, and tells what to clean in it: repeated pairs,
    equal sides, pairs that are dropped. The batches are planned from the first
    100,000 pairs, and a few steps are taken of a mean one and of the longest.
    It writes nothing to the run directory.

    Example:
        print(kt.dry_run(corpus="my-text", recipe="small-corpus"))

    Args:
        run_dir: As in `train`, like all others.
        **settings: The other arguments of `train`.

    Returns:
        A table, as text to print.
    """
    session = request.understand(run_dir=run_dir, **settings)
    with request.log_shown():
        return costs_of(session)


def costs_of(session: Session) -> str:
    """Measure a session, and write the table that the user reads."""
    if session.strategy == "multiworker" or os.environ.get("TF_CONFIG"):
        raise UserError(
            "Expected one machine for a dry run, received `strategy` "
            "multiworker or TF_CONFIG; leave them out."
        )
    with devices.explained(request.LESS_MEMORY):
        preparation.check_beginning(session)
        devices.let_memory_grow()
        devices.log_devices()
        strategy = workers.make_strategy(session.strategy)
        session, plan, of_text = planned(session)
        with strategy.scope():
            model = building.build_model(session)
        rows = measured(session, plan, model, strategy.num_replicas_in_sync)
    warn_of_warm_up(session.run.training, session.run.training.steps)
    columns = "  {:<20}{:>14}  {}".format
    lines = (
        row if isinstance(row, str) else columns(*row).rstrip()
        for row in (*rows, "", *of_text)
    )
    return "\n".join(lines)


def planned(session: Session) -> tuple[Session, BatchPlan, list[Row]]:
    """Plan the batches of the head of the text, and look through all of it."""
    run, corpus = session.run, session.text
    looking = Inspection(corpus, run.held_out)
    head = list[Pair]()
    with heartbeat("Looking through the text"):
        for pair in looking.watch(corpus.pairs(run.train_split)):
            if len(head) < HEAD_PAIRS:
                head.append(pair)
    splits = {run.train_split: head, run.validation_split: head[:1]}
    text = open_corpus(splits, run.source_lang, run.target_lang)
    with tempfile.TemporaryDirectory() as name:
        folder, longest = pathlib.Path(name), run.training.max_length
        run, tokenizer = preparation.prepare_vocabulary(session, folder, text)
        records = TokenisedCorpus.in_memory(head, tokenizer, longest)
        plan = building.plan_batches(records, run.training)
        epoch = len(plan) * looking.pairs // len(head)
        run = preparation.fitted(session, run, epoch)
        of_text = looking.rows(records, tokenizer, longest)
    return dataclasses.replace(session, run=run), plan, of_text


def measured(
    session: Session, plan: BatchPlan, model: Transformer, replicas: int
) -> list[Row]:
    """Write the rows of the model, its batches, its time and its memory."""
    run, steps = session.run, session.run.training.steps
    mean = statistics.fmean(_size(plan.shape(i)) for i in range(len(plan)))
    usual = min(plan.shapes(), key=lambda shape: abs(_size(shape) - mean))
    longest = max(plan.shapes(), key=lambda shape: sum(shape[1:]))
    seconds, most = (time_of(model, x, replicas) for x in (usual, longest))
    if session.minutes:
        steps = int(min(steps, max(1, 60 * session.minutes / seconds)))
    source, target = (tokens / len(plan) for tokens in plan.corpus.num_tokens)
    shape = "seconds for {} rows × {} source × {} target tokens".format
    return [
        f"{run.preset} on {run.corpus}: {run.training.precision}, replicas: "
        f"{replicas}, micro-batches: {run.training.accumulate}",
        ("vocabulary", f"{run.model.vocab_size:,}", "pieces"),
        ("parameters", f"{model.count_params():,}", ""),
        "",
        "A step, the mean of an epoch",
        ("source tokens", f"{source:,.0f}", "without padding"),
        ("target tokens", f"{target:,.0f}", "without padding"),
        ("padding", f"{100 * plan.padding_waste():.1f}", "% of positions"),
        ("batch shapes", f"{len(plan.shapes()):,}", ""),
        "",
        f"Time and memory, from {MEASURED_STEPS} steps of each",
        ("a usual batch", f"{seconds:.3g}", shape(*usual)),
        ("the longest one", f"{most:.3g}", shape(*longest)),
        ("target tokens/s", f"{target / seconds:,.0f}", ""),
        ("peak memory", f"{devices.peak_memory() / 1e9:.2f}", "GB"),
        f"The whole training, {steps:,} steps"
        + (f" in {session.minutes:g} minutes" if session.minutes else ""),
        ("hours", f"{seconds * steps / 3600:,.3g}", ""),
    ]


def _size(shape: Shape) -> int:
    return shape[0] * sum(shape[1:])


def time_of(model: Transformer, shape: Shape, replicas: int = 1) -> float:
    """Measure the seconds of a training step of a shape over all replicas."""
    rows, *lengths = shape
    if not tf.config.list_logical_devices("GPU"):
        share = MOST_WITHOUT_GPU / (model.count_params() * _size(shape))
        rows = max(int(rows * min(1, share)) // replicas, 1) * replicas
    random, size = np.random.default_rng(1), model.model_config.vocab_size
    source, target_in, target = (
        random.integers(EOS_ID + 1, size, (rows, length), np.int32)
        for length in (*lengths, lengths[1])
    )
    dataset = tf.data.Dataset.from_tensors(((source, target_in), target))
    dataset = dataset.repeat(1 + MEASURED_STEPS)
    dataset.has_begin_tokens = True  # Any will do.
    ends: list[float] = []

    def note(batch: int, logs: Any) -> None:
        float(logs["loss"])  # Waits for the step.
        ends.append(time.perf_counter())

    logger.info("Measuring steps of %d rows.", rows)
    timer = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(dataset, shuffle=False, verbose=0, callbacks=[timer])
    # The first step builds the graph. Of fewer rows this is an upper bound,
    # since Adam's cost does not depend on them.
    return statistics.median(np.diff(ends)) * shape[0] / rows
