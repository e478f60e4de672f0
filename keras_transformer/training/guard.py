"""The end of a training whose figures are no longer finite."""

import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import JobError
from keras_transformer.data.batching import BatchPlan
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.machine import files
from keras_transformer.runs.checkpoints import Progress, list_checkpoints
from keras_transformer.runs.layout import LOGS
from keras_transformer.training.step_window import StepWindow

SHOWN_PAIRS = 3

logger = logging.getLogger("keras_transformer")


class StopOnNonFinite(keras.callbacks.Callback):
    """Ends a run at the first loss, gradient or weight that is not finite.

    It looks once in so many updates, so that a GPU need not wait for the
    figures of each, and whenever `check` is called: before a checkpoint. In
    a cluster the first worker looks, and the others end as it has gone.

    Under float16 a gradient that overflows is normal: Keras's
    `LossScaleOptimizer` skips the update and halves its scale. A loss that is
    not finite is not.

    Args:
        run_dir: The run directory. The sentences of the batch are written to
            `logs/bad-batch-step-N.txt` in it.
        now: Tells the progress.
        plan: The `BatchPlan` that the run trains on.
        tokenizer: The run's tokenizer.
        every: Updates between looks.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike,
        now: Callable[[], Progress],
        plan: BatchPlan,
        tokenizer: Tokenizer,
        every: int = 10,
    ) -> None:
        super().__init__()
        self.run_dir = pathlib.Path(run_dir)
        self.now = now
        self.plan = plan
        self.tokenizer = tokenizer
        self.every = every
        self.steps: list[int] = []
        self.window = StepWindow(("batch_loss", "gradient_norm"))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        self.steps.append(self.now().step)
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
        steps, self.steps = self.steps, []
        figures = self.window.read()
        self.window.clear()
        for step, (loss, norm) in zip(steps, figures, strict=True):
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
            "command would come by here again, so mend the sentences or "
            "lower the learning rate in another --run-dir."
        )

    def sentences(self, step: int) -> list[tuple[str, ...]]:
        """Sources and targets of an update's batch, as text."""
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
