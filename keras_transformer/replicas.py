"""What exact steps need of a TensorFlow strategy: seeds, sums, one function.

On one device, and on other backends, nothing here has an effect. TensorFlow is
imported only if it is Keras's backend.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.keras_internals import Tensor

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, with different units dropped on every replica."""

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if training and self.rate and (context := _replica_context()):
            seeds = _SeedsOfReplica(self.seed_generator, context)
            shape = self.noise_shape
            return keras.random.dropout(inputs, self.rate, shape, seeds)
        return super().call(inputs, training)


class _SeedsOfReplica(keras.random.SeedGenerator):
    """Makes other seeds on every replica from a generator they all share."""

    def __init__(self, generator, context):
        # Without a state of its own, which Keras's constructor would make.
        self.generator, self.context = generator, context

    def next(self, ordered: bool = True) -> Tensor:
        seed = self.generator.next(ordered)
        replica = ops.cast(self.context.replica_id_in_sync_group, seed.dtype)
        return seed + ops.stack([replica, ops.zeros_like(replica)])


def seeds_of(model: keras.Model) -> list[keras.Variable]:
    """List the states of all dropout layers, which are no weights of Keras."""
    weights = {id(weight) for weight in model.weights}
    return [v for v in model.variables if id(v) not in weights]


def sum_over_replicas(values: Any) -> Any:
    """Sum a tensor, or each of a nest, over all replicas, if there are any."""
    context = _replica_context()
    if context is None:
        return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def mean_over_replicas(total: Tensor, count: Tensor) -> Tensor:
    """Divide the sum of all replicas by the count of all replicas.

    Takes this replica's parts, float32 scalars; no gradient flows through the
    count. On several replicas the result is the mean divided by their number,
    because Keras adds up the replicas' losses, and its gradient covers this
    replica's part only, so that all gradients add up to that of the mean.
    """
    context = _replica_context()
    if context is None:
        return total / safe_count(count)
    sums = sum_over_replicas(ops.stack([ops.stop_gradient(total), count]))
    divisor = safe_count(sums[1])
    part = total / divisor
    mean = sums[0] / divisor / context.num_replicas_in_sync
    return mean + (part - ops.stop_gradient(part))


def safe_count(count: Tensor) -> Tensor:
    """Replace a count of zero by one, to divide by."""
    return ops.where(ops.equal(count, 0.0), 1.0, count)


def _replica_context():
    """Return this replica's context, if its strategy has several replicas."""
    if keras.backend.backend() != "tensorflow":
        return None
    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None


def is_replicated(model: keras.Model) -> bool:
    """Return whether Keras's own steps fail under the model's strategy."""
    strategy = model.distribute_strategy
    # Under a strategy for workers, Keras's logs fail even with a single worker.
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return workers or strategy.num_replicas_in_sync > 1


def step_function(model: keras.Model, step: Callable) -> Callable:
    """Make the function of an iterator that Keras calls for a step.

    It returns the logs of the first local replica.
    """
    strategy = model.distribute_strategy

    def step_of_replica(batch):
        def given(x):
            return None if isinstance(x, tf.experimental.Optional) else x

        return step(tf.nest.map_structure(given, batch))

    def one_step(batch):
        return tf.nest.map_structure(
            lambda value: strategy.experimental_local_results(value)[0],
            strategy.run(step_of_replica, (batch,)),
        )

    def next_step(iterator):
        return one_step(iterator.get_next())

    if not model.run_eagerly:
        one_step, next_step = (
            tf.function(function, reduce_retracing=True, autograph=False)
            for function in (one_step, next_step)
        )

    def function(iterator):
        if hasattr(iterator, "get_next"):
            return next_step(iterator)
        return one_step(next(iterator))

    return function
