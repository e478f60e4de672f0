"""What happens around the steps of `fit`: time, signals, checkpoints."""

import logging
import pathlib
import signal
import threading
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformer.runs.checkpoints import Progress

logger = logging.getLogger("keras_transformer")


class StepCallbacks(keras.callbacks.CallbackList):
    """Callbacks for `fit`; the package's own get a step's logs as tensors.

    Keras turns all logs into floats after every step, which waits until the
    device has done it. Here nothing does, but for callbacks of others that look
    at steps: they get floats, as from Keras.

    Args:
        own: Callbacks that take tensors, called first.
        theirs: Any other Keras callbacks.
        model: The model to fit.
        steps: Steps of its only epoch.
        vote: Tells whether `fit` is to end on any worker, so that it ends on
            all after the same step; None without other workers.
    """

    def __init__(
        self,
        own: Sequence[keras.callbacks.Callback],
        theirs: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        steps: int | None = None,
        vote: Callable[[bool], bool] | None = None,
    ) -> None:
        super().__init__(
            [*own, *theirs],
            add_history=True,
            model=model,
            verbose=0,
            epochs=1,
            steps=steps,
        )
        self.own = list(own)
        self.theirs = [each for each in theirs if _looks_at_steps(each)]
        self.vote = vote
        self.wanted = False

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self.vote is None:
            return self._call(batch, logs)
        # What callbacks want now is voted on after the next step.
        agreed = self.model.stop_training = self.vote(self.wanted)
        self._call(batch, logs)
        self.wanted, self.model.stop_training = (
            self.model.stop_training,
            agreed,
        )

    def _call(self, batch: int, logs: dict[str, Any] | None) -> None:
        for callback in self.own:
            callback.on_train_batch_end(batch, logs)
        if self.theirs:
            floats = {name: float(x) for name, x in (logs or {}).items()}
            for callback in self.theirs:
                callback.on_train_batch_end(batch, floats)


def _looks_at_steps(callback: keras.callbacks.Callback) -> bool:
    """Whether it does anything when a step ends."""
    # Of the callback itself, which a `LambdaCallback` gives a function.
    return any(
        getattr(getattr(callback, name), "__func__", None)
        is not getattr(keras.callbacks.Callback, name)
        for name in ("on_train_batch_end", "on_batch_end")
    )


class Stopwatch(keras.callbacks.Callback):
    """Counts updates and seconds, over all sessions of a run.

    It looks at the clock once an update, so that what is written in a
    checkpoint and what ends a training is the same time.

    Args:
        start: The progress that training resumes from.
    """

    def __init__(self, start: Progress) -> None:
        super().__init__()
        self.progress = self.start = start

    def now(self) -> Progress:
        """The progress at the end of the last update."""
        return self.progress

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.began = time.monotonic()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        seconds = time.monotonic() - self.began
        self.progress = Progress(
            self.progress.step + 1, self.start.seconds + seconds
        )


class StopTraining(keras.callbacks.Callback):
    """Ends `fit` after the running step: on a signal, or when time is up.

    The first Ctrl-C or SIGTERM lets the step end, so that a checkpoint can be
    written; a second one ends the process at once.

    Args:
        now: Tells the progress.
        minutes: Minutes of training in all; None for no limit.
        several: Whether there are other workers, who may end it too.

    Attributes:
        signal: The signal that came, or None. SIGTERM stands for the end of
            another worker's training.
        wanted: Set to end as if time were up.
    """

    def __init__(
        self,
        now: Callable[[], Progress],
        minutes: float | None,
        several: bool = False,
    ) -> None:
        super().__init__()
        self.now = now
        self.minutes = minutes
        self.several = several
        self.signal: signal.Signals | None = None
        self.wanted = False
        self.handlers: dict[signal.Signals, Any] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python gives signals to the main thread alone.
        for number in (signal.SIGINT, signal.SIGTERM):
            self.handlers[number] = signal.signal(number, self._note)

    def _note(self, number: int, frame: types.FrameType | None) -> None:
        self.signal = signal.Signals(number)
        logger.info("%s: ending after this step.", self.signal.name)
        signal.signal(number, signal.SIG_DFL)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        over = self.minutes and self.now().seconds >= 60 * self.minutes
        if self.signal or over or self.wanted:
            self.model.stop_training = True
        elif self.model.stop_training and self.several:
            logger.info("Another worker was asked to end: ending with it.")
            self.signal = signal.SIGTERM

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.restore_handlers()

    def restore_handlers(self) -> None:
        """Let signals do what they did before."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves every so many minutes or updates, and when training ends.

    Args:
        save: Writes a checkpoint of the `Progress` it is given, and returns
            its path.
        progress: Called without arguments, tells the `Progress` to save.
        minutes: Minutes between checkpoints.
        steps: Updates between checkpoints; overrules the minutes.
    """

    def __init__(
        self,
        save: Callable[[Progress], pathlib.Path],
        progress: Callable[[], Progress],
        minutes: float,
        steps: int | None,
    ) -> None:
        super().__init__()
        self.write = save
        self.progress = progress
        self.minutes = minutes
        self.steps = steps
        self.saved = progress()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        now = self.progress()
        if self.steps:
            due = now.step - self.saved.step >= self.steps
        else:
            due = now.seconds - self.saved.seconds >= 60 * self.minutes
        if due:
            self.save(now)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        now = self.progress()
        if now.step > self.saved.step:
            self.save(now)

    def save(self, now: Progress) -> None:
        logger.info("Wrote %s", self.write(now))
        self.saved = now
