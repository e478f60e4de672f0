"""Trains a run: prepare, restore, take the steps, finish.

All workers take the same steps, in one loop. The first one, the chief, also
prepares the run directory, validates, and alone writes.
"""

import contextlib
import signal
import threading
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformer import keras_internals
from keras_transformer.config import UserError, logger
from keras_transformer.data import batching
from keras_transformer.machine import devices
from keras_transformer.runs import averaging, checkpoints, history, layout
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import display, preparation, workers
from keras_transformer.training.building import Training, local_copy, restored
from keras_transformer.training.request import LESS_MEMORY, Session
from keras_transformer.training.validation import Validation, reached

# One training at a time, since it sets the process's seeds.
_training = threading.Lock()
# Updates between two moments at which workers agree whether to stop.
STOP_EVERY = 10
# What a worker that was told to end adds to the votes: more than all others.
TOLD = 1_000_000


class Stop:
    """Whether Ctrl-C, SIGTERM or SIGHUP has asked a training to end.

    Inside `listening`, the first one lets the running step end, so that a
    checkpoint can be written; where there are no steps, it ends at once. A
    second one does what it does elsewhere.
    """

    has_steps = False  # Validations before and after them included.

    def __init__(self) -> None:
        # What was received; SIGTERM also stands for the end of another worker.
        self.signal: signal.Signals | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note signals until the block ends."""
        handlers: dict[signal.Signals, Any] = {}

        def note(number: int, frame: types.FrameType | None) -> None:
            self.signal = signal.Signals(number)
            when = " after this step" if self.has_steps else ""
            logger.info("%s: ending%s.", self.signal.name, when)
            signal.signal(number, handlers[self.signal])
            if not self.has_steps:
                self.end()

        # Python gives signals only to the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # `nohup` and a shell's `&` have them ignored.
                if signal.getsignal(number) != signal.SIG_IGN:
                    handlers[number] = signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def end(self) -> None:
        """End as the signal asks, if one came."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal:
            raise SystemExit(0)


def train(session: Session) -> None:
    """Train or resume, on this machine or as one of several.

    After Ctrl-C, SIGTERM or SIGHUP it raises `KeyboardInterrupt` or
    `SystemExit`; if it has taken steps, it writes a checkpoint first.
    """
    if averaging.is_slim(session.run_dir):
        said = (
            f"{session.run_dir} has no checkpoints to go on from, only its "
            "weights; with `init_from` another run starts from them."
        )
        before = RunConfig.load(session.run_dir).training
        if session.run.training.steps > before.steps:
            raise UserError(said)
        logger.warning(said)
        return
    devices.let_memory_grow()
    devices.log_devices()
    if not _training.acquire(blocking=False):
        raise UserError(
            "This process already runs a training, which sets its seeds; "
            "wait, or start another process."
        )
    stop = Stop()
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        stack.callback(_training.release)
        enter(devices.explained(LESS_MEMORY, session.run_dir))
        enter(stop.listening())
        strategy = workers.make_strategy(session.strategy)
        if workers.is_chief(strategy):
            preparation.check_beginning(session)
            enter(layout.only_writer(session.run_dir))
        enter(workers.together(strategy))
        enter(keras_internals.gradients_forgotten())
        _train(session, strategy, stop)
    stop.end()


def _train(
    session: Session, strategy: tf.distribute.Strategy, stop: Stop
) -> None:
    """Prepare, restore, train and finish."""
    is_chief = workers.is_chief(strategy)
    with workers.chief_first(strategy):
        read = preparation.prepare if is_chief else preparation.read_prepared
        training = read(session)
    training = restored(training, strategy)
    run, model, start = training.run, training.model, training.start
    now, over = start, limits(training, start)
    _describe(training, over)
    is_finished = workers.sum_of(strategy, len(over))
    writer = None
    if is_chief:
        # A kill may have come between a checkpoint and its validation. The last
        # validation comes before `result.json`.
        is_due = over or start.step % run.training.validation_steps == 0
        is_open = start.step and start.figures is None and is_due
        must_validate_first = is_open and not averaging.final_result(
            session.run_dir
        )
        several = workers.are_several(strategy)
        validation = Validation(training, local_copy(run) if several else model)
        if must_validate_first or not is_finished:
            writer = Writer(training, validation, stop)
    stop.has_steps, model.stop_training = True, False
    try:
        if writer and must_validate_first:
            now = writer.validate(now)
        if not is_finished:
            now = _take_steps(training, now, stop, writer)
    finally:
        if writer:
            writer.history.close()
    stop.has_steps = False
    if is_chief and stop.signal:
        logger.info("Stopped; the same command goes on from here.")
    elif is_chief:
        validation.finish(now, model.get_weights())
        logger.info("Peak memory: %.1f GB.", devices.peak_memory() / 1e9)


def limits(training: Training, now: Progress) -> list[str]:
    """Name the settings that let it take no more step."""
    recipe, minutes = training.run.training, training.session.minutes
    is_reached = {
        "steps": now.step >= recipe.steps,
        "minutes": minutes and now.seconds >= 60 * minutes,
        **reached(recipe, now),
    }
    return [name for name, over in is_reached.items() if over]


def _describe(training: Training, over: Sequence[str]) -> None:
    """Log the model and where it goes on, or what would let it go on."""
    start, model = training.start, training.model
    if over:
        logger.info(
            "%s is finished: %d updates in %.1f minutes. It goes on with a "
            "higher %s.",
            training.session.run_dir,
            start.step,
            start.seconds / 60,
            " and ".join(f"`{name}`" for name in over),
        )
        return
    parameters = f"{model.count_params():,}"
    replicas = model.distribute_strategy.num_replicas_in_sync
    said = "%s: %s parameters, replicas: %d."
    logger.info(said, training.run.preset, parameters, replicas)
    if start.step:
        logger.info("Resuming after update %d.", start.step)
    recipe = training.run.training
    display.warn_of_warm_up(recipe, recipe.steps)


def _take_steps(
    training: Training, now: Progress, stop: Stop, writer: "Writer | None"
) -> Progress:
    """Train until the last update, or until a worker wants to stop sooner."""
    model, start = training.model, now
    recipe, strategy = training.run.training, model.distribute_strategy
    left = recipe.steps - now.step
    mark = None
    if recipe.term_share:
        from keras_transformer.training.term_marks import TermMarks

        with display.heartbeat("Learning which words belong together"):
            plan, tokenizer = training.plan, training.tokenizer
            mark = TermMarks(training.run, plan.corpus, tokenizer)
    stream = batching.stream(training.plan, now.step, change=mark)
    stream = iter(workers.share_rows(strategy, stream))
    callbacks = [*training.session.callbacks]
    theirs = keras.callbacks.CallbackList(
        callbacks, model=model, verbose=0, epochs=1, steps=left
    )
    model.make_train_function()
    model.reset_metrics()
    began, logs = time.monotonic(), {}
    theirs.on_train_begin()
    theirs.on_epoch_begin(0)
    for batch in range(left):
        # Together, so that no worker waits for one that has left the loop.
        may_stop = (
            not workers.are_several(strategy)
            or now.step % STOP_EVERY == 0
            or now.step % recipe.validation_steps == 0
        )
        is_over = bool(model.stop_training or limits(training, now))
        wish = TOLD if stop.signal else int(is_over)
        if may_stop and (wishes := workers.sum_of(strategy, wish)):
            if wishes >= TOLD and not stop.signal:
                logger.info("Another worker was asked to end: ending with it.")
                stop.signal = signal.SIGTERM
            break
        theirs.on_train_batch_begin(batch)
        logs = model.train_function(stream)
        seconds = start.seconds + time.monotonic() - began
        now = Progress(now.step + 1, seconds, standing=now.standing)
        if writer:
            now = writer.after_step(now, logs)
        if callbacks:  # Keras makes floats of the logs: it waits for the step.
            theirs.on_train_batch_end(batch, logs)
    theirs.on_epoch_end(0, logs)
    if writer and now.step > start.step:
        now = writer.at_end(now)
    theirs.on_train_end(logs)
    return now


class Writer:
    """What the chief alone does beside the steps: it watches and writes.

    The order after a step has its reasons: bad figures end a training before
    they are saved; what is quick to lose is saved before what takes long; a
    validation adds to the row that the display has written.
    """

    def __init__(
        self, training: Training, validation: Validation, stop: Stop
    ) -> None:
        self.model, self.run_dir = training.model, training.session.run_dir
        self.recipe, self.saved = training.run.training, training.start
        self.validation, self.stop = validation, stop
        self.history = history.History(self.run_dir, training.start.step)
        self.watch = display.Watch(training, self.history)

    def after_step(self, now: Progress, logs: Mapping[str, Any]) -> Progress:
        """Save, show and validate where it is due."""
        self.watch.after_step(now, logs)
        seconds = now.seconds - self.saved.seconds
        if self.recipe.is_checkpoint_due(now.step, seconds):
            self.save(now)
        is_due = now.step % self.recipe.validation_steps == 0
        return self.validate(now) if is_due else now

    def at_end(self, now: Progress) -> Progress:
        """Save and validate the last step, unless that is done."""
        if now.step > self.saved.step:
            self.save(now, is_temporary=True)
        if now.step > self.watch.last.step:
            self.watch.report(now)
        is_done = now.step % self.recipe.validation_steps == 0
        return now if is_done else self.validate(now)

    def save(self, now: Progress, is_temporary: bool = False) -> None:
        """Write a checkpoint; the next one replaces a temporary one.

        So the average at the end has the same checkpoints, whatever ended the
        sessions between them.
        """
        self.watch.check(now.step)
        layout.check_lock(self.run_dir)
        keep = self.recipe.keep_checkpoints
        path = checkpoints.save_checkpoint(
            self.run_dir, self.model, now, keep, is_temporary
        )
        logger.info("Wrote %s", path)
        self.saved = now

    def validate(self, now: Progress) -> Progress:
        """Validate, unless a signal came, whose sender may be in a hurry."""
        if self.stop.signal:
            return now
        now = self.validation.validate(now, self.model, self.history)
        for reason in reached(self.recipe, now).values():
            logger.info("%s: ending after step %d.", reason, now.step)
        return now
