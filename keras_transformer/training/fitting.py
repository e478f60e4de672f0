"""From a place in a training to its end: `fit`, and what goes on beside it."""

import contextlib
import pathlib
import signal
from collections.abc import Iterator, Sequence

import keras
from tensorflow.python.framework.ops import gradient_registry

from keras_transformer.data import batching
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import callbacks, workers
from keras_transformer.training.display import Compilations, TrainingDisplay
from keras_transformer.training.guard import StopOnNonFinite
from keras_transformer.training.moving_average import MovingAverage
from keras_transformer.training.session import Session
from keras_transformer.training.validation import Validation, Validator


def fit(
    run: RunConfig,
    run_dir: pathlib.Path,
    model: Transformer,
    average: MovingAverage | None,
    plan: batching.BatchPlan,
    tokenizer: Tokenizer,
    validator: Validator,
    start: Progress,
    session: Session,
) -> signal.Signals | None:
    """Train from `start` on; returns the signal that ended it, or None."""
    recipe = run.training
    stopwatch = callbacks.Stopwatch(start)
    now = stopwatch.now
    history = History(run_dir, start.step)
    stop = callbacks.StopTraining(
        now,
        session.minutes,
        workers.are_several(model.distribute_strategy),
    )
    guard = StopOnNonFinite(run_dir, now, plan, tokenizer)
    display = TrainingDisplay(now, history, recipe.steps, session.minutes)

    def save(progress: Progress) -> pathlib.Path:
        guard.check()
        return checkpoints.save_checkpoint(
            run_dir,
            model,
            progress,
            recipe.keep_checkpoints,
            average.variables if average else (),
        )

    validation = Validation(
        now,
        history,
        validator,
        recipe.validation_steps,
        stop,
        weights=average.in_use if average else contextlib.nullcontext,
        target_bleu=recipe.target_bleu,
    )
    try:
        _fit(
            model,
            plan,
            start,
            recipe.steps,
            [
                stopwatch,
                *([Compilations(plan, start.step)] if model.xla else []),
                *([average] if average else []),
                guard,
                # First of those that take time: a second signal finds it done.
                callbacks.SaveCheckpoints(
                    save,
                    now,
                    recipe.checkpoint_minutes,
                    recipe.checkpoint_steps,
                ),
                stop,
                display,
                validation,
            ],
            session.callbacks,
        )
    finally:  # Keras ends no callback after an error.
        stop.restore_handlers()
        display.bar.stop()
        history.close()
    return stop.signal


def fit_beside_chief(
    run: RunConfig,
    model: Transformer,
    average: MovingAverage | None,
    plan: batching.BatchPlan,
    start: Progress,
) -> signal.Signals | None:
    """Take part in every step of `fit`; returns a signal that came, or None."""
    stopwatch = callbacks.Stopwatch(start)
    # The chief looks at the clock.
    stop = callbacks.StopTraining(stopwatch.now, None, several=True)
    with contextlib.ExitStack() as stack:
        stack.callback(stop.restore_handlers)
        _fit(
            model,
            plan,
            start,
            run.training.steps,
            [stopwatch, *([average] if average else []), stop],
        )
    return stop.signal


def _fit(
    model: Transformer,
    plan: batching.BatchPlan,
    start: Progress,
    steps: int,
    own: list[keras.callbacks.Callback],
    theirs: Sequence[keras.callbacks.Callback] = (),
) -> None:
    left = steps - start.step
    batches = batching.stream(plan, divmod(start.step, len(plan)))
    strategy = model.distribute_strategy
    model.fit(
        workers.share_rows(strategy, batches),
        steps_per_epoch=left,
        shuffle=False,
        verbose=0,
        callbacks=callbacks.StepCallbacks(
            own, theirs, model, left, workers.vote_of(strategy)
        ),
    )


@contextlib.contextmanager
def gradients_forgotten() -> Iterator[None]:
    """Let TensorFlow forget the gradients that it notes meanwhile.

    It keeps every `custom_gradient` of a graph, and so the graph, until the
    process ends: 13 MB of a toy training.
    """
    noted = gradient_registry._registry
    before = set(noted)
    try:
        yield
    finally:
        for name in set(noted) - before:
            if name.startswith("CustomGradient-"):
                del noted[name]
