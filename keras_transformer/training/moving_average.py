"""A moving average of the weights, kept while they are trained."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf


class MovingAverage(keras.callbacks.Callback):
    """Exponential moving average of the weights.

    After t updates, weights w_i have a share proportional to ema^(t - i): the
    random start has none. Updates that `LossScaleOptimizer` skips do not count.

    Make it in the strategy's scope; each replica then keeps its own copy, and
    no replica waits for another.

    Args:
        model: A compiled model without frozen weights.
        ema: Factor by which a share falls with every update, in (0, 1).

    Attributes:
        variables: The mean of each of `model.trainable_variables`.
    """

    def __init__(self, model: keras.Model, ema: float) -> None:
        super().__init__()
        # A validation may come before `fit` gives callbacks their model.
        self.set_model(model)
        self.ema = ema
        self.variables = [
            keras.Variable(weight.numpy(), trainable=False)
            for weight in model.trainable_variables
        ]
        self.updates = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.graph = tf.function(self.update, autograph=False)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # Both may come from a checkpoint.
        self.updates.assign(self.model.optimizer.iterations)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.graph()

    def update(self) -> None:
        updates = tf.convert_to_tensor(self.model.optimizer.iterations)
        ema = tf.constant(self.ema, tf.float64)
        share = (1 - ema) / (1 - ema ** tf.cast(updates, tf.float64))
        share = tf.where(updates > self.updates, share, 0.0)
        strategy = self.model.distribute_strategy
        for average, weight in zip(
            self.variables, self.model.trainable_variables, strict=True
        ):
            strategy.extended.update(
                average.value,
                _move,
                args=(weight.value, tf.cast(share, average.dtype)),
                group=False,
            )
        self.updates.assign(updates)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Lend the model the averages, for example to validate them."""
        weights = self.model.trainable_variables
        trained = [weight.numpy() for weight in weights]
        for weight, average in zip(weights, self.variables, strict=True):
            weight.assign(average.numpy())
        try:
            yield
        finally:
            for weight, value in zip(weights, trained, strict=True):
                weight.assign(value)


def _move(average: tf.Variable, weight: tf.Tensor, share: tf.Tensor) -> None:
    # Exactly `weight` where the share is 1, exactly `average` where it is 0.
    average.assign((1 - share) * average + share * weight)
