"""Figures of many steps, brought from their device in one go."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class StepWindow:
    """Some of the logs of each step, as tensors until they are read.

    A step is not waited for when it is appended, and one transfer reads all
    that are new, however many.

    Args:
        names: Which of the logs, all of them float scalars.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.new: list[Any] = []
        self.known = np.zeros((0, len(names)))

    def __len__(self) -> int:
        """Steps since the last `clear`."""
        return len(self.known) + len(self.new) // len(self.names)

    def append(self, logs: Mapping[str, Any]) -> None:
        """Add a step."""
        self.new += [logs[name] for name in self.names]

    def read(self) -> np.ndarray:
        """Every step's figures, float64 `(steps, names)`; waits for them."""
        if self.new:
            stacked = tf.stack(self.new).numpy().astype(np.float64)
            rows = stacked.reshape(-1, len(self.names))
            self.known = np.concatenate([self.known, rows])
            self.new = []
        return self.known

    def clear(self) -> None:
        """Forget all steps."""
        self.new, self.known = [], self.known[:0]
