"""Watches the steps of a training: shows them, and ends it at a bad figure."""

import contextlib
import datetime
import math
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
from keras.optimizers import LossScaleOptimizer

from keras_transformer.config import JobError, TrainingConfig, logger
from keras_transformer.runs.checkpoints import Progress, list_checkpoints
from keras_transformer.runs.history import History
from keras_transformer.training.building import Training, schedule_of

SECONDS = 60.0  # Between two lines of the log, at most.
LOOK_EVERY = 10  # Updates between two looks at their figures.
FIGURES = ("tokens", "batch_loss", "batch_perplexity", "gradient_norm")


class Watch:
    """Shows the updates of a training, and ends it at a bad figure.

    It logs a line a minute, at first more, and adds it to the history. The
    first loss, gradient or weight that is not finite ends the run. It looks for
    one at intervals, so that a GPU need not wait for the figures of every
    update, and before a checkpoint. In a cluster only the first worker looks;
    the others end when it has gone.

    Under float16 a gradient that overflows is normal: Keras's
    `LossScaleOptimizer` skips the update and halves its scale. A loss that is
    not finite is never normal.
    """

    def __init__(self, training: Training, history: History) -> None:
        self.training, self.history = training, history
        self.seconds = 5.0  # Until the next line.
        self.first: Progress | None = None
        self.last = training.start  # When the last line was written.
        self.has_warned = False
        # Tensors, so that appending them does not wait for the step.
        self.new: list[Any] = []
        self.seen = [np.zeros((0, len(FIGURES)))]

    def after_step(self, now: Progress, logs: Mapping[str, Any]) -> None:
        """Take the figures of an update; now and then look, and show them."""
        self.new += [logs[name] for name in FIGURES]
        if now.step % LOOK_EVERY == 0:
            self.look(now.step)
        seconds = now.seconds - self.last.seconds
        if self.first is None:
            self.first = now
            logger.info("First step after %.1f s.", seconds)
            self.report(now)
        elif seconds >= self.seconds:
            self.report(now)
            self.seconds = min(2 * self.seconds, SECONDS)
            self.warn_of_minutes(now, self.first)

    def seconds_left(self, now: Progress) -> float:
        """Estimate the time to the last update, or until the minutes end."""
        start = self.training.start
        seconds = now.seconds - start.seconds
        steps = max(now.step - start.step, 1)
        left = (self.training.run.training.steps - now.step) * seconds / steps
        if minutes := self.training.session.minutes:
            left = min(left, max(60 * minutes - now.seconds, 0.0))
        return left

    def report(self, now: Progress) -> None:
        """Log means over the target tokens since the last line, and a rate."""
        self.look(now.step)
        tokens, losses, perplexities, norms = np.concatenate(self.seen).T
        self.seen.clear()
        norms = norms[np.isfinite(norms)]  # Of updates that were not skipped.
        total = float(tokens.sum()) or 1.0
        loss = (losses * tokens).sum() / total
        perplexity = np.exp((np.log(perplexities) * tokens).sum() / total)
        norm = norms.mean() if norms.size else math.nan
        speed = total / max(now.seconds - self.last.seconds, 1e-9)
        left = datetime.timedelta(seconds=int(self.seconds_left(now)))
        # The first step includes tracing, and says nothing of the others.
        ending = "" if now == self.first else f"  {left} left"
        logger.info(
            "step %d/%d  loss %.3f  perplexity %.2f  gradient %.2f  %s target "
            "tokens/s%s",
            now.step,
            self.training.run.training.steps,
            loss,
            perplexity,
            norm,
            f"{speed:,.0f}",
            ending,
        )
        # Keras has already counted the last update, perhaps on each replica.
        counted = self.training.model.optimizer.iterations
        updates = int(tf.convert_to_tensor(counted))
        rate = schedule_of(self.training.run)(max(updates - 1, 0))
        self.history.add(
            now,
            loss=loss,
            perplexity=perplexity,
            gradient_norm=norm,
            learning_rate=float(rate),
            tokens_per_second=speed,
        )
        self.last = now

    def warn_of_minutes(self, now: Progress, first: Progress) -> None:
        """Warn once if the minutes end inside the warm-up (5.3)."""
        recipe = self.training.run.training
        minutes = self.training.session.minutes
        seconds = now.seconds - first.seconds
        # At first it is too early to tell.
        if minutes and seconds >= min(60.0, 15 * minutes):
            left = 60 * minutes - now.seconds
            steps = now.step + round(left * (now.step - first.step) / seconds)
            # Of too few `steps` it has been told.
            if steps < recipe.steps and not self.has_warned:
                self.has_warned = True
                warn_of_warm_up(recipe, steps)

    def check(self, step: int) -> None:
        """Look at all figures since the last look, then at all weights."""
        self.look(step)
        model = self.training.model
        variables = [*model.weights, *model.optimizer.variables]
        each = [keras.ops.all(keras.ops.isfinite(v)) for v in variables]
        finite = tf.stack(each)
        for variable, is_finite in zip(variables, finite.numpy(), strict=True):
            if not is_finite:
                self.fail(step, f"{variable.path} is not finite")

    def look(self, last: int) -> None:
        """Wait for the figures since the last look, and check them."""
        optimizer = self.training.model.optimizer
        may_overflow = isinstance(optimizer, LossScaleOptimizer)
        # One transfer reads all steps.
        figures = np.array(tf.stack(self.new) if self.new else [], "float64")
        self.seen.append(figures.reshape(-1, len(FIGURES)))
        self.new = []
        first = last - len(self.seen[-1]) + 1
        for step, (_, loss, _, norm) in enumerate(self.seen[-1], first):
            if not np.isfinite(loss):
                self.fail(step, f"the loss is {float(loss)}")
            if not (may_overflow or np.isfinite(norm)):
                self.fail(step, f"the norm of the gradient is {float(norm)}")
        if may_overflow and optimizer.dynamic_scale.numpy() < 1:
            self.fail(last, "the gradient overflows float16, though unscaled")

    def fail(self, step: int, reason: str) -> NoReturn:
        kept = list_checkpoints(self.training.session.run_dir)
        last = f"is {kept[-1]}" if kept else "was not written yet"
        raise JobError(
            f"At step {step} {reason}; the last good checkpoint {last}; the "
            "same command would fail here again, so lower "
            "`learning_rate_scale` in another `run_dir`."
        )


def warn_of_warm_up(recipe: TrainingConfig, steps: int) -> None:
    """Warn if a training of so many updates ends in its warm-up (5.3)."""
    warmup, shorter = recipe.warmup_steps, max(steps // 4, 1)
    if steps < warmup:
        logger.warning(
            "The training ends after about %d updates, inside the warm-up of "
            "%d, where the learning rate still rises: train for longer or, in "
            "another `run_dir`, with `warmup_steps` %d and "
            "`learning_rate_scale` %.3g, which keeps the highest rate.",
            steps,
            warmup,
            shorter,
            recipe.learning_rate_scale * (shorter / warmup) ** 0.5,
        )


@contextlib.contextmanager
def heartbeat(what: str, seconds: float = 5.0) -> Iterator[None]:
    """Log `what` and its duration, ever less often, until the block ends."""
    start = time.monotonic()
    ended = threading.Event()

    def beat(wait: float) -> None:
        while not ended.wait(wait):
            logger.info("%s: %.0f s so far.", what, time.monotonic() - start)
            wait = min(2 * wait, SECONDS)

    thread = threading.Thread(target=beat, args=(seconds,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
