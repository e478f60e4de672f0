"""Trains a run: prepare, restore, take the steps, finish.

The chief does all of it; other workers take part only in the steps. All share
the run directory.
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
import resource
import signal
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformer import keras_internals
from keras_transformer.config import UserError
from keras_transformer.data import batching
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import devices, exhaustion
from keras_transformer.model import Transformer
from keras_transformer.runs import averaging, checkpoints, history, layout
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig, load_vocabulary
from keras_transformer.training import workers
from keras_transformer.training.building import (
    local_copy,
    plan_batches,
    restore_model,
    schedule_of,
    warn_of_warm_up,
)
from keras_transformer.training.display import Guard, TrainingDisplay
from keras_transformer.training.preparation import check_beginning, prepare
from keras_transformer.training.request import Session, session_of_begun
from keras_transformer.training.validation import Patience, Validation

# One training at a time, since it sets the process's seeds.
_training = threading.Lock()

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Training:
    """A training that was prepared and restored, for its parts to read.

    The model is compiled. Its weights are those of update `start.step`.
    """

    session: Session
    tokenizer: Tokenizer
    plan: BatchPlan
    model: Transformer
    start: Progress

    @property
    def run(self) -> RunConfig:
        """The configuration of the run."""
        return self.session.run

    @property
    def run_dir(self) -> pathlib.Path:
        """The run directory."""
        return self.session.run_dir

    @functools.cached_property
    def patience(self) -> Patience:
        """Counts validations; never over without the setting `patience`."""
        return Patience(self.run.training, self.start.standing)

    def vote_finished(self) -> bool:
        """Return whether there is nothing left to train, for any worker.

        All workers must ask, before the chief changes the history.
        """
        finished = self.is_at_limit or self.patience.is_over
        vote = workers.vote_of(self.model.distribute_strategy)
        return vote(finished) if vote else finished

    @property
    def is_at_limit(self) -> bool:
        """Tell whether it has reached its steps, minutes or target BLEU."""
        minutes, recipe = self.session.minutes, self.run.training
        if minutes and self.start.seconds >= 60 * minutes:
            return True
        if self.start.step >= recipe.steps:
            return True
        found = (self.start.figures or {}).get("bleu", -1.0)
        return recipe.target_bleu is not None and found >= recipe.target_bleu

    @functools.cached_property
    def lacks_validation(self) -> bool:
        """Whether a kill came between a checkpoint and its validation."""
        step = self.start.step
        # `result.json` is written only after the last validation.
        if not step or averaging.final_result(self.run_dir):
            return False
        is_due = step % self.run.training.validation_steps == 0
        return (is_due or self.is_at_limit) and self.start.figures is None


@dataclasses.dataclass(eq=False)
class Stop:
    """Whether to end after the running step: on a signal, or when time is up.

    Inside `listening`, which also covers validations before and after steps,
    the first Ctrl-C, SIGTERM or SIGHUP lets the step end, so that a checkpoint
    can be written. A second Ctrl-C raises `KeyboardInterrupt` at once, as
    usual; a second SIGTERM or SIGHUP ends the process.
    """

    minutes: float | None = None  # Of training in all; None for no limit.
    wanted: bool = False  # Set to end as if time were up, also on others.

    def __post_init__(self) -> None:
        # What was received; SIGTERM also stands for the end of another worker.
        self.signal: signal.Signals | None = None
        self.handlers: dict[signal.Signals, Any] = {}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note signals until the block ends."""
        # Python gives signals only to the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # `nohup` and a shell's `&` have them ignored.
                if signal.getsignal(number) != signal.SIG_IGN:
                    self.handlers[number] = signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.signal = signal.Signals(number)
        logger.info("%s: ending after this step.", self.signal.name)
        # A notebook's kernel outlives any number of Ctrl-C.
        is_ctrl_c = number == signal.SIGINT
        second = self.handlers[self.signal] if is_ctrl_c else signal.SIG_DFL
        signal.signal(number, second)

    def is_due(self, now: Progress) -> bool:
        """Return whether this worker has a reason to end."""
        over = self.minutes and now.seconds >= 60 * self.minutes
        return bool(self.signal or over or self.wanted)


def train(session: Session) -> None:
    """Train or resume, on this machine or as one of several.

    It ends with `KeyboardInterrupt` or `SystemExit` after Ctrl-C or SIGTERM,
    and a checkpoint.
    """
    if averaging.is_slim(session.run_dir):
        _say_it_is_over(session)
        return
    devices.let_memory_grow()
    devices.log_devices()
    with exhaustion.explained(session.less_memory, session.run_dir):
        stopped = _train_on_workers(session)
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt
    if stopped:
        raise SystemExit(0)


def _say_it_is_over(session: Session) -> None:
    """Refuse to train on without checkpoints; only the search may change."""
    begun = RunConfig.load(session.run_dir)
    if begun.search != session.run.search:
        run = dataclasses.replace(begun, search=session.run.search)
        with layout.only_writer(session.run_dir):
            run.save(session.run_dir)
    why = "finished. Its checkpoints are gone"
    if begun.is_imported:
        why = "imported, without what a training needs"
    said = (
        f"{session.run_dir} is {why}, so it cannot go on; `init_from` "
        "starts another run from its weights."
    )
    if session.settings.get("steps", 0) > begun.training.steps:
        raise UserError(said)
    logger.info(said)


def _train_on_workers(session: Session) -> signal.Signals | None:
    """Train as the chief or beside it; return the signal that ended it."""
    if isinstance(session.tokenizer, Tokenizer) and workers.count_workers() > 1:
        raise UserError(
            "Expected the path of a vocabulary where there are several "
            "workers, which must meet before TensorFlow computes anything; "
            "save the tokenizer and pass its file."
        )
    strategy = workers.make_strategy(session.strategy)
    with (
        _only_training(),
        workers.lost_worker_told(strategy),
        keras_internals.gradients_forgotten(),
    ):
        if workers.is_chief(strategy):
            check_beginning(session)
            with layout.only_writer(session.run_dir):
                stopped = _train(session, strategy)
        else:
            stopped = _train_beside_chief(session, strategy)
        workers.end_together(strategy)
    return stopped


def _train(
    session: Session, strategy: tf.distribute.Strategy
) -> signal.Signals | None:
    """Train on this machine, or as the chief of several."""
    run_dir = session.run_dir
    run, tokenizer, plan, batches, watched = prepare(session)
    session = dataclasses.replace(session, run=run)
    workers.meet(strategy)  # The others now read the files.
    restored = restore_model(session, plan, strategy)
    for side in {tokenizer, tokenizer.target}:
        # `build_model` has set the seed, which unloads these operators.
        side.load_operator()
    training = Training(session, tokenizer, plan, *restored)
    finished = training.vote_finished()
    _describe_finished(training) if finished else _describe(training)
    model = training.model
    measured = local_copy(run) if workers.are_several(strategy) else model
    validation = Validation(
        *(run_dir, run, measured, tokenizer, batches, watched),
        training.patience,
    )
    if training.lacks_validation or not finished:
        stopped = _fit(training, validation, finished)
        if stopped:
            logger.info("Stopped; the same command goes on from here.")
            return stopped
    validation.finish(model.get_weights())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    logger.info("Peak memory: %.1f GB.", peak)
    return None


def _describe(training: Training) -> None:
    """Log the model and the update to resume after."""
    replicas = training.model.distribute_strategy.num_replicas_in_sync
    logger.info(
        "%s: %s parameters, %d replica%s.",
        *(training.run.preset, f"{training.model.count_params():,}"),
        *(replicas, "s" if replicas > 1 else ""),
    )
    if training.start.step:
        logger.info("Resuming after update %d.", training.start.step)
    warn_of_warm_up(training.run.training, training.run.training.steps)


def _describe_finished(training: Training) -> None:
    """Log what would let a finished training go on."""
    start, patience = training.start, training.patience
    way = "More `steps` or `minutes`"
    if patience.is_over:
        more = "more `steps` or `minutes` and " if training.is_at_limit else ""
        way = f"{patience.reason()}; {more}a larger `patience`"
    logger.info(
        "%s is finished: %d updates in %.1f minutes. %s would go on.",
        *(training.run_dir, start.step, start.seconds / 60, way),
    )


def _train_beside_chief(
    session: Session, strategy: tf.distribute.Strategy
) -> signal.Signals | None:
    """Train as a worker that is not the chief, and write nothing."""
    workers.meet(strategy)  # The chief has prepared the run directory.
    run_dir = session.run_dir
    workers.wait_for_file(run_dir / layout.CONFIG_FILE)
    session = session_of_begun(RunConfig.load(run_dir), session)
    run = session.run
    records = TokenisedCorpus.load(run_dir / layout.RECORDS / run.train_split)
    tokenizer = load_vocabulary(run_dir)
    plan = plan_batches(records, run.training)
    restored = restore_model(session, plan, strategy)
    training = Training(session, tokenizer, plan, *restored)
    if training.vote_finished():
        return None
    stop = Stop()  # Only the chief looks at the clock.
    with stop.listening():
        _take_steps(training, stop)
    return stop.signal


def _fit(
    training: Training, validation: Validation, finished: bool
) -> signal.Signals | None:
    """Train to the end; return the signal that came before it, or None."""
    stop = Stop(training.session.minutes)
    several = workers.are_several(training.model.distribute_strategy)
    writer = Writer(training, validation, stop)
    with contextlib.closing(writer), stop.listening():
        if training.lacks_validation:
            writer.validate(training.start)
        stop.wanted = stop.wanted or stop.signal is not None
        # Other workers hear of the end only in a step's vote.
        if not finished and (several or not stop.wanted):
            _take_steps(training, stop, writer)
    return stop.signal


def _take_steps(
    training: Training, stop: Stop, writer: "Writer | None" = None
) -> None:
    """Train until the last update, or until something ends it sooner.

    Where there are several workers, each tells in the vote after a step
    whether it wants to end, and all end with the step that follows the wish.
    """
    model, now = training.model, training.start
    left = training.run.training.steps - now.step
    strategy = model.distribute_strategy
    stream = iter(
        workers.share_rows(strategy, batching.stream(training.plan, now.step))
    )
    vote = workers.vote_of(strategy)
    callbacks = [*training.session.callbacks] if writer else []
    theirs = keras.callbacks.CallbackList(
        callbacks, model=model, verbose=0, epochs=1, steps=left
    )
    # Keras turns all logs into floats, and so waits for the device. Only
    # callbacks that look at steps cause that here.
    look_at_steps = _look_at_steps(callbacks)
    model.stop_training = False
    model.make_train_function()
    model.reset_metrics()
    began, logs, agreed = time.monotonic(), {}, False
    theirs.on_train_begin()
    theirs.on_epoch_begin(0)
    for batch in range(left):
        theirs.on_train_batch_begin(batch)
        logs = model.train_function(stream)
        seconds = training.start.seconds + time.monotonic() - began
        now = Progress(now.step + 1, seconds)
        if vote:
            agreed = vote(stop.wanted)
            if agreed and not stop.is_due(now):
                logger.info("Another worker was asked to end: ending with it.")
                stop.signal = signal.SIGTERM
        if writer:
            writer.after_step(now, logs)
        if look_at_steps:
            theirs.on_train_batch_end(batch, logs)
        stop.wanted = stop.is_due(now) or model.stop_training
        if agreed if vote else stop.wanted:
            break
    theirs.on_epoch_end(0, logs)
    if writer:
        writer.at_end(now)
    theirs.on_train_end(logs)


def _look_at_steps(callbacks: Sequence[keras.callbacks.Callback]) -> bool:
    """Return whether a callback does anything when a step ends."""
    # Look at the object, since a `LambdaCallback` sets a function on itself.
    return any(
        getattr(getattr(callback, name), "__func__", None)
        is not getattr(keras.callbacks.Callback, name)
        for callback in callbacks
        for name in ("on_train_batch_end", "on_batch_end")
    )


class Writer:
    """What the chief alone does beside the steps: it watches and writes.

    The order after a step has its reasons: bad figures end a training before
    they are saved; what is quick to lose is saved before what takes long; a
    validation adds to the row that the display has written.
    """

    def __init__(
        self, training: Training, validation: Validation, stop: Stop
    ) -> None:
        run, run_dir = training.run, training.run_dir
        model, start = training.model, training.start
        self.model, self.run_dir, self.stop = model, run_dir, stop
        self.recipe, self.saved = run.training, start
        self.validation = validation
        self.history = history.History(run_dir, start.step)
        self.guard = Guard(run_dir, model, training.plan, training.tokenizer)
        self.display = TrainingDisplay(
            *(model, start, self.history, run.training.steps, stop.minutes),
            schedule_of(run),
        )

    def after_step(self, now: Progress, logs: Mapping[str, Any]) -> None:
        """Save, show and validate where it is due."""
        self.guard.after_step(now.step, logs)
        seconds = now.seconds - self.saved.seconds
        if self.recipe.is_checkpoint_due(now.step, seconds):
            self.save(now)
        self.display.after_step(now, logs)
        if now.step % self.recipe.validation_steps == 0:
            self.validate(now)

    def at_end(self, now: Progress) -> None:
        """Save and validate the last step, unless that is done."""
        if now.step > self.saved.step:
            self.save(now, is_temporary=True)
        self.display.at_end(now)
        if now.step % self.recipe.validation_steps:
            self.validate(now)

    def save(self, now: Progress, is_temporary: bool = False) -> None:
        """Write a checkpoint; the next one replaces a temporary one.

        So the average at the end has the same checkpoints, whatever ended the
        sessions between them.
        """
        self.guard.check(now.step)
        layout.check_lock(self.run_dir)
        last = self.validation.last
        measured = dataclasses.replace(
            now,
            figures=last.figures if last.step == now.step else None,
            standing=self.validation.patience.standing,
        )
        path = checkpoints.save_checkpoint(
            *(self.run_dir, self.model, measured),
            *(self.recipe.keep_checkpoints, is_temporary),
        )
        logger.info("Wrote %s", path)
        self.saved = now

    def validate(self, now: Progress) -> None:
        """Validate, unless a signal came, whose sender may be in a hurry."""
        if self.stop.signal:
            return
        reason = self.validation.validate(
            *(now, self.model, self.history),
            lambda: self.stop.signal is not None,
        )
        if reason and not self.stop.wanted:
            logger.info("%s: ending after step %d.", reason, now.step)
            self.stop.wanted = True

    def close(self) -> None:
        """Leave the terminal and the files as they should be."""
        self.display.bar.stop()
        self.history.close()


@contextlib.contextmanager
def _only_training() -> Iterator[None]:
    """Keep another thread's training from using the same seeds."""
    if not _training.acquire(blocking=False):
        raise UserError(
            "Expected one training at a time in a process, since it sets the "
            "process's seeds, received a second one; wait until the first "
            "ends, or start another process."
        )
    try:
        yield
    finally:
        _training.release()
