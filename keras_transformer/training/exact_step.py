"""One training step that is exact, on one replica or many (section 5.1).

The gradient of a global batch is the sum over the target tokens of all
replicas and micro-batches, divided by their global count. A mean for each
replica, which is Keras's way, weighs a replica with few tokens like one with
many.

Axes: B batch, S source length, T target length, M rows of a micro-batch.
"""

from typing import Any

import keras
import tensorflow as tf

from keras_transformer import keras_internals
from keras_transformer.config import SettingError
from keras_transformer.losses import (
    SmoothedCrossEntropy,
    tied_cross_entropies,
    token_cross_entropies,
    token_weights,
)
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.model import Transformer
from keras_transformer.replicas import (
    local_values,
    safe_count,
    sum_over_replicas,
)
from keras_transformer.training import workers


@keras.saving.register_keras_serializable(package="keras_transformer")
class ExactTransformer(Transformer):
    """A `Transformer` whose `fit` takes exact steps under any strategy.

    Compile it with an optimizer and `SmoothedCrossEntropy`, without metrics;
    the rest is Keras's own `fit` and `evaluate`. Besides `loss`, the logs of a
    training step hold `batch_loss`, `perplexity` (of the unsmoothed
    likelihood), `gradient_norm` (of the global batch, the loss scale taken out)
    and `tokens`, the target tokens of the global batch; those of `evaluate`
    hold `token_accuracy` and `perplexity`. `compile`'s `jit_compile` puts the
    gradient of a replica under XLA, under any strategy; `"auto"` does on GPUs.

    Args:
        accumulate: Micro-batches that a replica's share of a batch is run in,
            one after the other, at least 1. Saves memory; changes nothing
            else.
        **kwargs: The arguments of `Transformer`.

    Raises:
        ValueError: If `accumulate` is below 1.
    """

    def __init__(self, accumulate: int = 1, **kwargs: Any) -> None:
        if accumulate < 1:
            raise SettingError("accumulate", "at least 1", accumulate)
        super().__init__(**kwargs)
        self.accumulate = accumulate

    def build(self, input_shape: Any = None) -> None:
        self.evaluation_metrics = [TokenAccuracy(), Perplexity()]
        super().build(input_shape)

    @property
    def stop_training(self) -> bool:
        """Whether `fit` ends here; with several workers, what all agreed on.

        Set on one worker, it ends `fit` on all of them after the same step.
        """
        if workers.are_several(self.distribute_strategy):
            return self._stop_agreed
        return self._stop_wanted

    @stop_training.setter
    def stop_training(self, wanted: bool) -> None:
        self._stop_wanted = wanted
        self._stop_agreed = False

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: SmoothedCrossEntropy | None = None,
        jit_compile: bool | str = "auto",
        **kwargs: Any,
    ) -> None:
        # Keras's own switch is off under a strategy, whose collectives XLA
        # cannot take in. Nearly all of a step is one replica's gradient.
        super().compile(optimizer, loss, jit_compile=False, **kwargs)
        if jit_compile == "auto":
            jit_compile = bool(tf.config.list_logical_devices("GPU"))
        self.xla = jit_compile
        self._gradient_graph = self._gradients
        if self.xla:
            ids = tf.TensorSpec([None, None], tf.int32)
            self._gradient_graph = tf.function(
                self._gradients,
                input_signature=[ids] * 3 + [tf.TensorSpec([], tf.float32)],
                jit_compile=True,
                autograph=False,
            )

    def make_train_function(self, force: bool = False) -> Any:
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return super().make_train_function(force)
        if self.train_function is None or force:
            steps = self._steps_on_replicas(self.train_step)
            several = workers.are_several(strategy)
            self.train_function = self._voting(steps) if several else steps
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return super().make_test_function(force)
        if self.test_function is None or force:
            self.test_function = self._steps_on_replicas(self.test_step)
        return self.test_function

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        (source, target_in), target = data
        count = sum_over_replicas(tf.reduce_sum(token_weights(target)))
        divisor = safe_count(count)
        if self.accumulate == 1:
            sums, gradients = self._gradient_graph(
                source, target_in, target, divisor
            )
        else:
            sums, gradients = self._accumulated(
                source, target_in, target, divisor
            )
        sums, gradients = sum_over_replicas((sums, gradients))
        # Before the update, which may change the scale.
        scale = self.optimizer.scale_loss(1.0)
        norm = tf.linalg.global_norm(gradients) / scale
        with keras_internals.summed_gradients(self.optimizer):
            self.optimizer.apply_gradients(
                zip(gradients, self.trainable_variables, strict=True)
            )
        loss, plain = tf.unstack(sums / divisor)
        tracker = keras_internals.loss_tracker(self)
        tracker.update_state(loss, sample_weight=count)
        return {
            "loss": tracker.result(),
            "batch_loss": loss,
            "perplexity": tf.exp(plain),
            "gradient_norm": norm,
            "tokens": count,
        }

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        inputs, target = data
        logits = self(inputs, training=False)
        smoothed, _ = token_cross_entropies(
            target, logits, self.loss.label_smoothing
        )
        # Flat, or Keras first takes the mean of each row.
        keras_internals.loss_tracker(self).update_state(
            tf.reshape(smoothed, [-1]),
            sample_weight=tf.reshape(token_weights(target), [-1]),
        )
        for metric in self.evaluation_metrics:
            metric.update_state(target, logits)
        return {metric.name: metric.result() for metric in self.metrics}

    def _voting(self, steps):
        """Let the workers vote, before `steps`, whether to end after them."""
        strategy = self.distribute_strategy

        @tf.function(autograph=False)
        def voting_steps(iterator, vote):
            votes = strategy.run(_count_votes, args=(vote,))
            return steps(iterator), local_values(strategy, votes)

        def train_function(iterator):
            vote = tf.constant(float(self._stop_wanted))
            logs, votes = voting_steps(iterator, vote)
            self._stop_agreed = bool(votes > 0)  # Waits for the device.
            return logs

        return train_function

    def _steps_on_replicas(self, step):
        """Make `steps_per_execution` steps of an iterator.

        Keras 3.15 takes the mean of the logs over the workers along an axis
        that scalars do not have; here every replica has the same logs. Its
        loop of several steps fails on what is left of a finite dataset.
        """
        strategy = self.distribute_strategy

        @tf.function(reduce_retracing=True, autograph=False)
        def one_step(batch):
            logs = strategy.run(step, args=(batch,))
            return local_values(strategy, logs)

        @tf.function(reduce_retracing=True, autograph=False)
        def steps(iterator):
            logs = one_step(iterator.get_next())
            if self.steps_per_execution > 1:
                _, logs = tf.while_loop(
                    lambda i, _: i < self.steps_per_execution,
                    lambda i, _: (i + 1, one_step(iterator.get_next())),
                    (1, logs),
                )
            return logs

        return steps

    def _gradients(self, source, target_in, target, divisor):
        """Sums of both cross-entropies `(2,)`, and the loss's gradients."""
        with tf.GradientTape() as tape:
            features = self.features((source, target_in), training=True)
            smoothed, plain = tied_cross_entropies(
                target,
                *self.embedding.factors(features),
                self.loss.label_smoothing,
            )
            weights = token_weights(target)
            total = tf.reduce_sum(smoothed * weights)
            scaled = self.optimizer.scale_loss(total / divisor)
        # Dense, also that of the tied matrix.
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(scaled, self.trainable_variables)
        ]
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
            new_sums, new = self._gradient_graph(
                *(ids[i] for ids in batch), divisor
            )
            gradients = [
                old + one for old, one in zip(gradients, new, strict=True)
            ]
            return i + 1, sums + new_sums, gradients

        _, sums, gradients = tf.while_loop(
            lambda i, *_: i < self.accumulate, add, start, parallel_iterations=1
        )
        return sums, gradients

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "accumulate": self.accumulate}


def _micro_batches(ids, count):
    """Split rows, padding where needed: `(B, T)` to `(count, M, T)`."""
    rows, length = tf.unstack(tf.shape(ids))
    ids = tf.pad(ids, [[0, -rows % count], [0, 0]])
    # Every count-th row, so that lengths are spread evenly.
    return tf.transpose(tf.reshape(ids, (-1, count, length)), (1, 0, 2))


def _count_votes(vote):
    # Placed, which an argument of a graph is not.
    return sum_over_replicas(tf.identity(vote))
