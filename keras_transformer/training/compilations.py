"""What XLA compiles during a training, and how long that takes."""

import logging
import time
from typing import Any

import keras

from keras_transformer.data.batching import BatchPlan

logger = logging.getLogger("keras_transformer")


class Compilations(keras.callbacks.Callback):
    """Logs every batch shape that comes for the first time.

    XLA compiles a step for each shape of a batch. The plan bounds their
    number: `len(plan.shapes())`. A session compiles its shapes anew:
    TensorFlow 2.21 can keep them in a folder, but fails where it cannot write
    there or finds a file damaged.

    Args:
        plan: The batches of the training.
        step: The update that training resumes from.

    Attributes:
        seen: The shapes (B, S, T) so far.
        seconds: Time that their first steps took, compilation included.
    """

    def __init__(self, plan: BatchPlan, step: int) -> None:
        super().__init__()
        self.plan = plan
        self.step = step
        self.seen: set[tuple[int, int, int]] = set()
        self.seconds = 0.0
        self.bound = len(plan.shapes())

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.started = time.monotonic()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        shape = self.plan.shape(self.step)
        self.step += 1
        if shape in self.seen:
            return
        seconds = time.monotonic() - self.started
        self.seen.add(shape)
        self.seconds += seconds
        logger.info(
            "XLA: compiled (B, S, T) = %s in %.1f s; %d of %d shapes, %.0f s "
            "in all.",
            shape,
            seconds,
            len(self.seen),
            self.bound,
            self.seconds,
        )
