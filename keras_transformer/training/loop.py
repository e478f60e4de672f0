"""Trains a run: prepare, restore, fit, finish.

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
from collections.abc import Iterator, Sequence

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
from keras_transformer.runs import averaging, checkpoints, history, layout, lock
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig, load_vocabulary
from keras_transformer.training import callbacks, ending, workers
from keras_transformer.training.building import (
    local_copy,
    plan_batches,
    restore_model,
    schedule_of,
    warn_of_warm_up,
)
from keras_transformer.training.display import TrainingDisplay
from keras_transformer.training.preparation import check_beginning, prepare
from keras_transformer.training.request import Session, session_of_begun
from keras_transformer.training.validation import (
    Patience,
    Validation,
    Validator,
)

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


def train(session: Session) -> None:
    """Train or resume, on this machine or as one of several.

    Raises:
        UserError: If the request does not fit the run directory.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    if averaging.is_slim(session.run_dir):
        begun = RunConfig.load(session.run_dir)
        if begun.search != session.run.search:
            run = dataclasses.replace(begun, search=session.run.search)
            with lock.only_writer(session.run_dir):
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
        return
    is_chosen = session.preset is None and session.init_from is None
    if is_chosen and not layout.has_begun(session.run_dir):
        logger.info(
            "Taking the preset %s, which fits the text; name another one as "
            "`preset`.",
            session.run.preset,
        )
    devices.let_memory_grow()
    devices.log_devices()
    with exhaustion.explained(session.less_memory, session.run_dir):
        stopped = _train_on_workers(session)
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt
    if stopped:
        raise SystemExit(0)


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
            with lock.only_writer(session.run_dir):
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
    run, tokenizer, plan, validation, watched = prepare(session)
    session = dataclasses.replace(session, run=run)
    workers.meet(strategy)  # The others now read the files.
    restored = restore_model(session, plan, strategy)
    for side in {tokenizer, tokenizer.target}:
        # `build_model` has set the seed, which unloads these operators.
        side.load_operator()
    training = Training(session, tokenizer, plan, *restored)
    finished = training.vote_finished()
    _describe(training, finished)
    model = training.model
    measured = local_copy(run) if workers.are_several(strategy) else model
    validator = Validator(measured, tokenizer, validation, watched, run)
    if training.lacks_validation or not finished:
        stopped = _fit(training, validator, finished)
        if stopped:
            logger.info("Stopped; the same command goes on from here.")
            return stopped
    if not finished:
        newest = checkpoints.list_checkpoints(run_dir)[-1]
        ended = checkpoints.step_of(newest)
        if ended < run.training.steps:
            warn_of_warm_up(run.training, ended)
    last = model.get_weights()
    standing = training.patience.standing
    ending.finish(session, validator, last, standing)
    logger.info(
        "Peak memory: %.1f GB.",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )
    return None


def _describe(training: Training, finished: bool) -> None:
    """Log the model and the update to resume after."""
    replicas = training.model.distribute_strategy.num_replicas_in_sync
    logger.info(
        "%s: %s parameters, %d replica%s.",
        training.run.preset,
        f"{training.model.count_params():,}",
        replicas,
        "s" if replicas > 1 else "",
    )
    start = training.start
    if finished:
        logger.info(
            "%s is finished: %d updates in %.1f minutes. %s would go on.",
            training.run_dir,
            start.step,
            start.seconds / 60,
            _way_on(training),
        )
    elif start.step:
        logger.info("Resuming after update %d.", start.step)
    warn_of_warm_up(training.run.training, training.run.training.steps)


def _way_on(training: Training) -> str:
    """Say what would let a finished training go on."""
    if not training.patience.is_over:
        return "More `steps` or `minutes`"
    reason = training.patience.reason()
    more = "more `steps` or `minutes` and " if training.is_at_limit else ""
    return f"{reason}; {more}a larger `patience`"


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
    stopwatch = callbacks.Stopwatch(training.start)
    # Only the chief looks at the clock.
    stop = callbacks.StopTraining(stopwatch.now, None, several=True)
    with stop.listening():
        _take_steps(training, [stopwatch, stop], stop)
    return stop.signal


def _fit(
    training: Training, validator: Validator, finished: bool
) -> signal.Signals | None:
    """Train to the end; return the signal that came before it, or None."""
    recipe, start = training.run.training, training.start
    run_dir, model, plan = training.run_dir, training.model, training.plan
    minutes = training.session.minutes
    stopwatch = callbacks.Stopwatch(start)
    now = stopwatch.now
    log = history.History(run_dir, start.step)
    several = workers.are_several(model.distribute_strategy)
    stop = callbacks.StopTraining(now, minutes, several)
    guard = callbacks.StopOnNonFinite(run_dir, now, plan, training.tokenizer)
    display = TrainingDisplay(
        now, log, recipe.steps, minutes, schedule_of(training.run)
    )

    validation = Validation(
        now,
        log,
        validator,
        recipe.validation_steps,
        stop,
        training.patience,
        target_bleu=recipe.target_bleu,
    )

    def save(progress: Progress, is_temporary: bool) -> pathlib.Path:
        guard.check()
        lock.check(run_dir)
        return checkpoints.save_checkpoint(
            run_dir,
            model,
            validation.measured(progress),
            recipe.keep_checkpoints,
            is_temporary,
        )

    # Called in this order.
    own = [
        stopwatch,  # First: all others ask it for the progress.
        guard,  # Before a checkpoint of weights that are not finite.
        # First of the slow ones, so that a second signal finds it done.
        callbacks.SaveCheckpoints(save, now, recipe.is_checkpoint_due),
        stop,  # So that no validation begins after a signal.
        display,  # Its row is that of the step, to which validation adds.
        validation,
    ]
    try:
        with stop.listening():
            if training.lacks_validation:
                validation.set_model(model)
                validation.validate()
            stop.wanted = stop.wanted or stop.signal is not None
            # Other workers hear of the end only in a step's vote.
            if not finished and (several or not stop.wanted):
                _take_steps(training, own, stop, training.session.callbacks)
    finally:  # Keras ends no callback after an error.
        display.bar.stop()
        log.close()
    return stop.signal


def _take_steps(
    training: Training,
    own: list[keras.callbacks.Callback],
    stop: callbacks.StopTraining,
    theirs: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Call `fit` for the remaining steps, or the one that ends others."""
    model, plan, step = training.model, training.plan, training.start.step
    left = training.run.training.steps - step
    batches = batching.stream(plan, step)
    strategy = model.distribute_strategy
    model.fit(
        workers.share_rows(strategy, batches),
        steps_per_epoch=left,
        shuffle=False,
        verbose=0,
        callbacks=callbacks.StepCallbacks(
            own, theirs, model, left, workers.vote_of(strategy), stop
        ),
    )


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
