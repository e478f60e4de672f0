"""Shows the progress of a training, on a terminal or in a log."""

import contextlib
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import rich.console
import rich.progress
import tensorflow as tf

from keras_transformer.optimizers import TransformerSchedule
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History
from keras_transformer.training.callbacks import Logs, StepWindow

logger = logging.getLogger("keras_transformer")
SECONDS = 60.0  # Between two lines of the log, at most.
FIGURES = ("tokens", "batch_loss", "batch_perplexity", "gradient_norm")


@dataclasses.dataclass(eq=False)
class TrainingDisplay(keras.callbacks.Callback):
    """A bar on a terminal; in a log, one line a minute, at first more."""

    now: Callable[[], Progress]
    history: History  # Gets a row for every line.
    steps: int  # Of the whole training.
    minutes: float | None  # Of the whole training; None for no limit.
    schedule: TransformerSchedule

    def __post_init__(self) -> None:
        super().__init__()
        self.seconds = 5.0  # Until the next line.
        self.first: Progress | None = None
        self.has_warned = False
        console = rich.console.Console(stderr=True)
        self.bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.description}"),
            console=console,
            transient=True,
            redirect_stdout=False,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("first step", total=1.0)

    def on_train_begin(self, logs: Logs = None) -> None:
        self.begin = self.last = self.now()
        self.window = StepWindow(FIGURES)
        self.bar.start()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        now = self.now()
        self.window.append(logs)
        first = now.step == self.begin.step + 1
        if first:
            self.first = now
            seconds = now.seconds - self.begin.seconds
            logger.info("First step after %.1f s.", seconds)
        if not self.bar.disable and len(self.window) % 10 == 0:
            self.show(now)
        if first:
            self.report(now)
        elif now.seconds - self.last.seconds >= self.seconds:
            self.report(now)
            self.seconds = min(2 * self.seconds, SECONDS)
            self.warn_of_minutes(now)

    def on_train_end(self, logs: Logs = None) -> None:
        if self.window:
            self.report(self.now())
        self.bar.stop()

    def summary(self, now: Progress) -> dict[str, float]:
        """Compute means over the window's target tokens, and tokens a second.

        The gradient's norm is averaged over updates, without those that
        float16 skipped.
        """
        tokens, losses, perplexities, norms = self.window.read().T
        norms = norms[np.isfinite(norms)]
        total = tokens.sum() or 1.0
        plain = (np.log(perplexities) * tokens).sum() / total
        return {
            "loss": float((losses * tokens).sum() / total),
            "perplexity": float(np.exp(plain)),
            "gradient_norm": float(norms.mean()) if norms.size else math.nan,
            "tokens_per_second": float(total)
            / max(now.seconds - self.last.seconds, 1e-9),
        }

    def line(
        self, now: Progress, values: Mapping[str, float]
    ) -> tuple[str, float]:
        done, left = self.estimate(now)
        # The first step includes tracing, and says nothing of the others.
        is_first = now.step <= self.begin.step + 1
        ending = "" if is_first else f"  {_clock(left)} left"
        return (
            f"step {now.step}/{self.steps}  loss {values['loss']:.3f}  "
            f"perplexity {values['perplexity']:.2f}  "
            f"gradient {values['gradient_norm']:.2f}  "
            f"{values['tokens_per_second']:,.0f} target tokens/s{ending}"
        ), done

    def estimate(self, now: Progress) -> tuple[float, float]:
        """Estimate the share of the training done, and the seconds left."""
        seconds = now.seconds - self.begin.seconds
        steps = now.step - self.begin.step
        left = (self.steps - now.step) * seconds / max(steps, 1)
        done = now.step / self.steps
        if self.minutes and 60 * self.minutes - now.seconds < left:
            left = max(60 * self.minutes - now.seconds, 0.0)
            done = min(now.seconds / (60 * self.minutes), 1.0)
        return done, left

    def show(self, now: Progress) -> None:
        line, done = self.line(now, self.summary(now))
        self.bar.update(self.task, completed=done, description=line)

    def report(self, now: Progress) -> None:
        values = self.summary(now)
        line, _ = self.line(now, values)
        logger.info("%s", line)
        # Keras has already counted the last update, perhaps on each replica.
        updates = tf.convert_to_tensor(self.model.optimizer.iterations)
        update = max(int(updates) - 1, 0)
        rate = float(self.schedule(update))
        self.history.add(now, learning_rate=rate, **values)
        self.last = now
        self.window.clear()

    def warn_of_minutes(self, now: Progress) -> None:
        """Warn once if the minutes end inside the warm-up (5.3)."""
        if self.minutes is None or self.first is None or self.has_warned:
            return
        seconds = now.seconds - self.first.seconds
        if seconds < min(60.0, 15 * self.minutes):  # Too early to tell.
            return
        left = 60 * self.minutes - now.seconds
        a_second = (now.step - self.first.step) / seconds
        steps = now.step + round(left * a_second)
        # `warn_of_warm_up` has told of too few steps.
        if steps < min(self.schedule.warmup_steps, self.steps):
            self.has_warned = True
            logger.warning(
                "At this speed %g minutes end after about %d updates, inside "
                "the warm-up of %d, where the learning rate still rises: "
                "lower `warmup_steps` in another `run_dir`, or train for "
                "longer.",
                self.minutes,
                steps,
                self.schedule.warmup_steps,
            )


def log_count(what: str, seconds: float = 30.0) -> Callable[[int], None]:
    """Make a function that logs the count it is given every `seconds`."""
    last = time.monotonic()

    def count(number: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            logger.info("%s %s", f"{number:,}", what)
            last = time.monotonic()

    return count


@contextlib.contextmanager
def heartbeat(what: str, seconds: float = 5.0) -> Iterator[None]:
    """Log `what` and its duration every `seconds`, until the block ends."""
    start = time.monotonic()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds):
            logger.info("%s: %.0f s so far.", what, time.monotonic() - start)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
