"""Callbacks around the steps of `fit`: time, signals, checkpoints."""

import contextlib
import dataclasses
import logging
import pathlib
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import JobError
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs.checkpoints import Progress, list_checkpoints
from keras_transformer.runs.layout import LOGS

logger = logging.getLogger("keras_transformer")
SHOWN_PAIRS = 3
Logs: TypeAlias = dict[str, Any] | None


class StepCallbacks(keras.callbacks.CallbackList):
    """Callbacks for `fit`; the package's own get a step's logs as tensors.

    Keras turns all logs into floats after every step, and so waits for the
    device. Here only other people's callbacks that look at steps get floats, as
    from Keras, and cause a wait.

    Args:
        own: Callbacks that take tensors, called first.
        theirs: Any other Keras callbacks.
        model: The model to fit.
        steps: Steps of its only epoch.
        vote: Returns whether `fit` should end on any worker, so that it ends
            on all after the same step; None without other workers.
        stop: Knows whether this worker wants the end; needed beside others.
    """

    def __init__(
        self,
        own: Sequence[keras.callbacks.Callback],
        theirs: Sequence[keras.callbacks.Callback],
        model: keras.Model,
        steps: int | None = None,
        vote: Callable[[bool], bool] | None = None,
        stop: "StopTraining | None" = None,
    ) -> None:
        super().__init__(
            [*own, *theirs],
            add_history=True,
            model=model,
            verbose=0,
            epochs=1,
            steps=steps,
        )
        self.own, self.vote, self.stop = own, vote, stop
        self.theirs = [each for each in theirs if _looks_at_steps(each)]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.vote is None or self.stop is None:
            return self._call(batch, logs)
        # Workers vote on the callbacks' wishes after the next step.
        agreed = self.model.stop_training = self.vote(self.stop.wanted)
        self._call(batch, logs)
        self.stop.wanted = self.model.stop_training
        self.model.stop_training = agreed

    def _call(self, batch: int, logs: Logs) -> None:
        for callback in self.own:
            callback.on_train_batch_end(batch, logs)
        if self.theirs:
            floats = {name: float(x) for name, x in (logs or {}).items()}
            for callback in self.theirs:
                callback.on_train_batch_end(batch, floats)


def _looks_at_steps(callback: keras.callbacks.Callback) -> bool:
    """Return whether a callback does anything when a step ends."""
    # Look at the object, since a `LambdaCallback` sets a function on itself.
    return any(
        getattr(getattr(callback, name), "__func__", None)
        is not getattr(keras.callbacks.Callback, name)
        for name in ("on_train_batch_end", "on_batch_end")
    )


@dataclasses.dataclass(eq=False)
class Stopwatch(keras.callbacks.Callback):
    """Counts updates and seconds, over all sessions of a run.

    It reads the clock once an update, so that a checkpoint records the same
    time that ends a training.
    """

    start: Progress  # Where training resumes.

    def __post_init__(self) -> None:
        super().__init__()
        self.progress = self.start

    def now(self) -> Progress:
        """Return the progress at the end of the last update."""
        return self.progress

    def on_train_begin(self, logs: Logs = None) -> None:
        self.began = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        seconds = time.monotonic() - self.began
        self.progress = Progress(
            self.progress.step + 1, self.start.seconds + seconds
        )


@dataclasses.dataclass(eq=False)
class StopTraining(keras.callbacks.Callback):
    """Ends `fit` after the running step: on a signal, or when time is up.

    Inside `listening`, which also covers validations before and after `fit`,
    the first Ctrl-C, SIGTERM or SIGHUP lets the step end, so that a checkpoint
    can be written. A second Ctrl-C raises `KeyboardInterrupt` at once, as
    usual; a second SIGTERM or SIGHUP ends the process.
    """

    now: Callable[[], Progress]
    minutes: float | None  # Of training in all; None for no limit.
    several: bool = False  # Other workers may also end it.
    wanted: bool = False  # Set to end as if time were up, also on others.

    def __post_init__(self) -> None:
        super().__init__()
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

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        over = self.minutes and self.now().seconds >= 60 * self.minutes
        if self.signal or over or self.wanted:
            self.model.stop_training = True
        elif self.model.stop_training and self.several:
            logger.info("Another worker was asked to end: ending with it.")
            self.signal = signal.SIGTERM


@dataclasses.dataclass(eq=False)
class SaveCheckpoints(keras.callbacks.Callback):
    """Saves at intervals of minutes or updates, and when training ends.

    Checkpoints by updates come at multiples of their interval, in whatever
    session. A session that ends in between writes a temporary checkpoint, which
    the next one replaces. So the average at the end has the same checkpoints as
    without interruptions.
    """

    # Writes a checkpoint, temporary or not, and returns its path.
    write: Callable[[Progress, bool], pathlib.Path]
    now: Callable[[], Progress]
    is_due: Callable[[int, float], bool]  # As of `TrainingConfig`.

    def __post_init__(self) -> None:
        super().__init__()
        self.saved = self.now()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        now = self.now()
        if self.is_due(now.step, now.seconds - self.saved.seconds):
            self.save(now, is_temporary=False)

    def on_train_end(self, logs: Logs = None) -> None:
        now = self.now()
        if now.step > self.saved.step:
            self.save(now, is_temporary=True)

    def save(self, now: Progress, is_temporary: bool) -> None:
        logger.info("Wrote %s", self.write(now, is_temporary))
        self.saved = now


@dataclasses.dataclass(eq=False)
class StopOnNonFinite(keras.callbacks.Callback):
    """Ends a run at the first loss, gradient or weight that is not finite.

    It looks at intervals, so that a GPU need not wait for the figures of every
    update, and whenever `check` is called: before a checkpoint. In a cluster
    only the first worker looks; the others end when it has gone.

    Under float16 a gradient that overflows is normal: Keras's
    `LossScaleOptimizer` skips the update and halves its scale. A loss that is
    not finite is never normal.
    """

    run_dir: pathlib.Path  # Gets the sentences of a bad batch, in its logs.
    now: Callable[[], Progress]
    plan: BatchPlan
    tokenizer: Tokenizer
    every: int = 10  # Updates between looks.

    def __post_init__(self) -> None:
        super().__init__()
        self.window = StepWindow(("batch_loss", "gradient_norm"))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        self.window.append(logs)
        if len(self.window) >= self.every:
            self.check_figures()

    def check(self) -> None:
        """Look at all figures since the last look, then at all weights.

        Raises:
            JobError: If one of them is not finite. It names the update, the
                file with the batch's sentences and the last checkpoint.
        """
        self.check_figures()
        variables = [*self.model.weights, *self.model.optimizer.variables]
        finite = tf.stack(
            [keras.ops.all(keras.ops.isfinite(v)) for v in variables]
        )
        for variable, is_finite in zip(variables, finite.numpy(), strict=True):
            if not is_finite:
                self.fail(self.now().step, f"{variable.path} is not finite")

    def check_figures(self) -> None:
        optimizer = self.model.optimizer
        may_overflow = isinstance(
            optimizer, keras.optimizers.LossScaleOptimizer
        )
        figures = self.window.read()
        self.window.clear()
        first = self.now().step - len(figures) + 1
        for step, (loss, norm) in enumerate(figures, first):
            if not np.isfinite(loss):
                self.fail(step, f"the loss is {float(loss)}")
            if not (may_overflow or np.isfinite(norm)):
                self.fail(step, f"the norm of the gradient is {float(norm)}")
        if may_overflow and optimizer.dynamic_scale.numpy() < 1:
            self.fail(
                self.now().step,
                "the gradient overflows float16 although nothing scales it up",
            )

    def fail(self, step: int, reason: str) -> NoReturn:
        pairs = self.sentences(step)
        path = self.run_dir / LOGS / f"bad-batch-step-{step}.txt"
        path.parent.mkdir(exist_ok=True)
        with files.open_whole(path) as file:
            for pair in pairs:
                file.write("\t".join(pair).encode() + b"\n")
        for source, target in pairs[:SHOWN_PAIRS]:
            logger.error("    source %s", source)
            logger.error("    target %s", target)
        kept = list_checkpoints(self.run_dir)
        last = f"is {kept[-1]}" if kept else "was not written yet"
        raise JobError(
            f"At step {step} {reason}; the {len(pairs)} sentence pairs of its "
            f"batch are in {path}; the last good checkpoint {last}; the same "
            "command would fail here again, so correct the sentences or "
            "lower the learning rate in another `run_dir`."
        )

    def sentences(self, step: int) -> list[tuple[str, ...]]:
        """Return the sources and targets of an update's batch, as text."""
        epoch, index = divmod(step - 1, len(self.plan))
        rows = self.plan.epoch(epoch)[index].rows
        rows = rows[rows >= 0]
        sides = [
            self.tokenizer.detokenize(
                side.padded(rows, side.lengths[rows].max())
            )
            for side in (self.plan.corpus.source, self.plan.corpus.target)
        ]
        return [
            tuple(text.decode() for text in pair)
            for pair in zip(*(side.numpy() for side in sides), strict=True)
        ]


class StepWindow:
    """Some float scalars of the logs of each step, tensors until they are read.

    Appending a step does not wait for it, and one transfer reads all new steps,
    however many.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.new: list[Any] = []
        self.known = np.zeros((0, len(names)))

    def __len__(self) -> int:
        """Return the number of steps since the last `clear`."""
        return len(self.known) + len(self.new) // len(self.names)

    def append(self, logs: Mapping[str, Any]) -> None:
        """Add a step."""
        self.new += [logs[name] for name in self.names]

    def read(self) -> np.ndarray:
        """Wait for every step's figures, float64 `(steps, names)`."""
        if self.new:
            stacked = tf.stack(self.new).numpy().astype(np.float64)
            rows = stacked.reshape(-1, len(self.names))
            self.known = np.concatenate([self.known, rows])
            self.new = []
        return self.known

    def clear(self) -> None:
        """Forget all steps."""
        self.new, self.known = [], self.known[:0]
