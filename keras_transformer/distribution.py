"""One training step that is exact, on one replica or many (section 5.1).

The gradient of a global batch is the sum over the target tokens of all
replicas and micro-batches, divided by their global count. A mean for each
replica, which is Keras's way, weighs a replica with few tokens like one with
many.

Axes: B batch, S source length, T target length, M rows of a micro-batch.
"""

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.losses import (
    safe_count,
    token_cross_entropies,
    token_weights,
)
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.model import Transformer

STRATEGIES = ("auto", "none", "mirrored")


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Choose where the replicas are.

    Args:
        name: `none` for one device, `mirrored` for every GPU of this machine,
            `auto` for `mirrored` where there is more than one GPU.

    Returns:
        A strategy whose scope the model must be built in.

    Raises:
        UserError: If there is no strategy of that name.
    """
    if name not in STRATEGIES:
        raise UserError(
            f"Expected a strategy among {', '.join(STRATEGIES)}, received "
            f"{name}."
        )
    gpus = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


class ExactTransformer(Transformer):
    """A `Transformer` whose `fit` takes exact steps under any strategy.

    Compile it with an optimizer and `SmoothedCrossEntropy`, without metrics;
    the rest is Keras's own `fit` and `evaluate`. Besides `loss`, the logs of a
    training step hold `batch_loss`, `perplexity` (of the unsmoothed
    likelihood) and `tokens`, the target tokens of the global batch; those of
    `evaluate` hold `token_accuracy` and `perplexity`.

    Args:
        accumulate: Micro-batches that a replica's share of a batch is run in,
            one after the other, at least 1. Saves memory; changes nothing
            else.
        **kwargs: The arguments of `Transformer`.

    Raises:
        ValueError: If `accumulate` is below 1.
    """

    def __init__(self, accumulate: int = 1, **kwargs) -> None:
        if accumulate < 1:
            raise ValueError(
                "`accumulate` must be at least 1. Received: "
                f"accumulate={accumulate}"
            )
        super().__init__(**kwargs)
        self.accumulate = accumulate

    def build(self, input_shape=None):
        self.evaluation_metrics = [TokenAccuracy(), Perplexity()]
        super().build(input_shape)

    def train_step(self, data):
        (source, target_in), target = data
        count = _over_replicas(tf.reduce_sum(token_weights(target)))
        divisor = safe_count(count)
        if self.accumulate == 1:
            sums, gradients = self._gradients(
                source, target_in, target, divisor
            )
        else:
            sums, gradients = self._accumulated(
                source, target_in, target, divisor
            )
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        loss, plain = tf.unstack(_over_replicas(sums) / divisor)
        self._loss_tracker.update_state(loss, sample_weight=count)
        return {
            "loss": self._loss_tracker.result(),
            "batch_loss": loss,
            "perplexity": tf.exp(plain),
            "tokens": count,
        }

    def test_step(self, data):
        inputs, target = data
        logits = self(inputs, training=False)
        smoothed, _ = token_cross_entropies(
            target, logits, self.loss.label_smoothing
        )
        # Flat, or Keras first takes the mean of each row.
        self._loss_tracker.update_state(
            tf.reshape(smoothed, [-1]),
            sample_weight=tf.reshape(token_weights(target), [-1]),
        )
        for metric in self.evaluation_metrics:
            metric.update_state(target, logits)
        return {metric.name: metric.result() for metric in self.metrics}

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Before the first step under a strategy, Keras 3.15 calls the model
        # on the mean of the replicas' batches, which ids do not have, to build
        # it. This model is built on construction.
        pass

    def _gradients(self, source, target_in, target, divisor):
        """Sums of both cross-entropies `(2,)`, and the loss's gradients."""
        with tf.GradientTape() as tape:
            logits = self((source, target_in), training=True)
            smoothed, plain = token_cross_entropies(
                target, logits, self.loss.label_smoothing
            )
            weights = token_weights(target)
            total = tf.reduce_sum(smoothed * weights)
            scaled = self.optimizer.scale_loss(total / divisor)
        gradients = tape.gradient(scaled, self.trainable_variables)
        return tf.stack([total, tf.reduce_sum(plain * weights)]), gradients

    def _accumulated(self, source, target_in, target, divisor):
        """As `_gradients`, over micro-batches of the same rows."""
        batch = [
            _micro_batches(ids, self.accumulate)
            for ids in (source, target_in, target)
        ]
        start = (
            tf.constant(0),
            tf.zeros(2),
            [tf.zeros_like(v) for v in self.trainable_variables],
        )

        def add(i, sums, gradients):
            new_sums, new = self._gradients(*(ids[i] for ids in batch), divisor)
            gradients = [
                old + tf.convert_to_tensor(one)
                for old, one in zip(gradients, new, strict=True)
            ]
            return i + 1, sums + new_sums, gradients

        _, sums, gradients = tf.while_loop(
            lambda i, *_: i < self.accumulate, add, start, parallel_iterations=1
        )
        return sums, gradients

    def get_config(self):
        return {**super().get_config(), "accumulate": self.accumulate}


def _micro_batches(ids, count):
    """Split rows, padding where needed: `(B, T)` to `(count, M, T)`."""
    rows, length = tf.unstack(tf.shape(ids))
    ids = tf.pad(ids, [[0, -rows % count], [0, 0]])
    # Every count-th row, so that lengths are spread evenly.
    return tf.transpose(tf.reshape(ids, (-1, count, length)), (1, 0, 2))


def _over_replicas(value):
    """Sum a value over all replicas."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
