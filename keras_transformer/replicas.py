"""Keras's own `fit` on several replicas of a TensorFlow strategy (section 5.1).

A part of the model wing, and the one place in it that knows replicas:
TensorFlow is imported inside functions, and only where it is Keras's backend.

Axes: B batch.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer import keras_internals
from keras_transformer.keras_internals import Tensor


class ReplicatedModel(keras_internals.BuildHook, keras.Model):
    """A `keras.Model` whose `fit` and `evaluate` work under every strategy.

    On one replica, and on other backends, it is `keras.Model`. On several it
    mends what Keras does otherwise:

    - Keras builds metrics on the mean of the replicas' batches, which unequal
      shapes have not. Here they are built on what the shapes are said to be.
    - Keras clips gradients, and asks whether they are finite, before it sums
      them. Here they are summed first, so that several replicas train as one.
    - Keras's logs of a batch are means of what each replica has seen. Here
      they are those of all.
    - Keras's loop of several steps a call fails on finite data, and its logs
      fail with several workers. Here both work; the steps are single calls.

    Make one `MirroredStrategy` a process: TensorFlow takes the collectives of a
    second one for those of the first, and fails, with any Keras model.

    Refused in `compile`, on several replicas: `jit_compile=True`, since XLA
    reaches one device alone; and optimizers that update under a condition
    where the strategy forbids it.
    """

    train_function: Any
    test_function: Any

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.compile`, in the scope of the model's strategy.

        Raises:
            ValueError: If the strategy cannot train so.
        """
        if keras.backend.backend() != "tensorflow":
            return super().compile(*args, **kwargs)
        # What Keras makes of names has to be made in the scope.
        with self.distribute_strategy.scope():
            super().compile(*args, **kwargs)
            _check_optimizer(self)
            if strategy_of(self) is not None:
                _check_replicated_step(self)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras's own leaves a model whose `compile` is overridden uncompiled.
        config = keras.saving.deserialize_keras_object(config)
        if strategy_of(self) is not None:
            # Saved is what `"auto"` came to elsewhere.
            config = {**config, "jit_compile": "auto"}
        self.compile(**config)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def spec_of_replica(self, spec: Any) -> Any:
        import tensorflow as tf

        # Of a part that is None there is no tensor.
        return tf.nest.map_structure(
            lambda part: next(
                iter(tf.nest.flatten(part, expand_composites=True)), None
            ),
            spec,
        )

    def make_train_function(self, force: bool = False) -> Any:
        strategy = strategy_of(self)
        if strategy is None:
            return super().make_train_function(force)
        if self.train_function is None or force:
            self.train_function = _step_function(
                self, strategy, self.train_step
            )
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        strategy = strategy_of(self)
        if strategy is None:
            return super().make_test_function(force)
        if self.test_function is None or force:
            self.test_function = _step_function(self, strategy, self.test_step)
        return self.test_function

    def train_step(self, *args: Any) -> Any:
        if strategy_of(self) is None:
            return super().train_step(*args)
        import tensorflow as tf

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        variables = self.trainable_variables
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight, True)
            scaled = self.optimizer.scale_loss(loss)
        gradients = dict(enumerate(tape.gradient(scaled, variables)))
        summed = sum_over_replicas(
            # Dense, also that of the tied matrix.
            {
                i: tf.convert_to_tensor(g)
                for i, g in gradients.items()
                if g is not None
            }
        )
        with keras_internals.summed_gradients(self.optimizer):
            self.optimizer.apply_gradients(
                (summed.get(i), variable)
                for i, variable in enumerate(variables)
            )
        # The replicas' losses add up to the loss.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        keras_internals.loss_tracker(self).update_state(
            loss * replicas, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0]
        )
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def predict_on_batch(self, x: Any) -> Any:
        outputs = super().predict_on_batch(x)
        if strategy_of(self) is None:
            return outputs
        # Every replica predicts the whole batch.
        rows = len(keras.tree.flatten(x)[0])
        return keras.tree.map_structure(lambda all: all[:rows], outputs)


class Dropout(keras.layers.Dropout):
    """Keras's dropout, which on every replica drops units of its own."""

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or not self.rate:
            return inputs
        seeds = _SeedsOfReplica(self.seed_generator)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, seeds)


class _SeedsOfReplica(keras.random.SeedGenerator):
    """The seeds of a generator whose state is the same on every replica."""

    def __init__(self, generator: keras.random.SeedGenerator) -> None:
        self.generator = generator  # And no state besides.

    def next(self, ordered: bool = True) -> Tensor:
        seed = self.generator.next(ordered)
        context = _replica_context()
        if context is None:
            return seed
        replica = ops.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + ops.stack([replica, ops.zeros_like(replica)])


def strategy_of(model: keras.Model) -> Any:
    """The strategy that Keras's own `fit` fails under, or `None`."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    strategy = model.distribute_strategy
    # With workers Keras's logs fail even if there is one.
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return strategy if workers or strategy.num_replicas_in_sync > 1 else None


def sum_over_replicas(values: Any) -> Any:
    """Sum tensors over all replicas.

    Args:
        values: A tensor or a nest of tensors of this replica.

    Returns:
        The same nest of sums; where there are no several replicas, or in the
        scope of a strategy but on none of its replicas, the values.
    """
    context = _replica_context()
    if context is None:
        return values
    import tensorflow as tf

    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def mean_over_replicas(total: Tensor, count: Tensor) -> Tensor:
    """Divide the sum of all replicas by the count of all replicas.

    Args:
        total: Float32 scalar, this replica's part of the sum.
        count: Float32 scalar, its part of the count. No gradient flows
            through it.

    Returns:
        Float32 scalar, 0 where the count is. On several replicas it is the
        mean divided by their number, because Keras adds the losses of the
        replicas up; and its gradient is that of this replica's part alone, so
        that gradients add up to the gradient of the mean.
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
    """Divide nothing by one, not by zero."""
    return ops.where(ops.equal(count, 0.0), 1.0, count)


def local_values(strategy: Any, values: Any) -> Any:
    """Take a nest of a local replica's values out of those of all."""
    import tensorflow as tf

    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], values
    )


def _replica_context():
    """This replica's context, if its strategy has several replicas."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None


def _check_optimizer(model):
    """Refuse an optimizer whose variables would lie elsewhere."""
    if model.optimizer is None:
        return
    made_in = keras_internals.strategy_of_optimizer(model.optimizer)
    if made_in is not model.distribute_strategy:
        raise ValueError(
            "`optimizer` must be made in the scope of the strategy that the "
            "model was made in: `with strategy.scope(): ...`. Received: a "
            f"model of {type(model.distribute_strategy).__name__}, an "
            f"optimizer of {type(made_in).__name__}"
        )


def _check_replicated_step(model):
    """Refuse, in the strategy's scope, what would fail in the first step."""
    import tensorflow as tf

    name = type(model.distribute_strategy).__name__
    if model.jit_compile:
        raise ValueError(
            f"`jit_compile` must be False under {name}, whose step XLA cannot "
            f"compile. Received: jit_compile={model.jit_compile}"
        )
    if tf.__internal__.distribute.strategy_supports_no_merge_call():
        return
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    for setting in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
        if getattr(optimizer, setting, None):
            raise ValueError(
                f"The optimizer's `{setting}` must be None under {name}, which "
                "has no updates under a condition. Received: "
                f"{setting}={getattr(optimizer, setting)}"
            )


def _step_function(
    model: keras.Model, strategy: Any, step: Callable
) -> Callable:
    """Make what Keras calls with an iterator for `steps_per_execution` steps.

    Returns:
        A function of an iterator, TensorFlow's or Python's, to the logs of the
        last step.
    """
    import tensorflow as tf

    def step_of_replica(batch):
        def given(x):
            return None if isinstance(x, tf.experimental.Optional) else x

        return step(tf.nest.map_structure(given, batch))

    def one_step(batch):
        logs = strategy.run(step_of_replica, args=(batch,))
        # Of all replicas, not the mean of what each has seen by itself.
        metrics = model.get_metrics_result()
        if isinstance(logs, dict) and logs.keys() == metrics.keys():
            return metrics
        return tf.nest.map_structure(
            lambda values: strategy.reduce("MEAN", values, axis=None), logs
        )

    def next_step(iterator):
        return one_step(iterator.get_next())

    if not model.run_eagerly:
        one_step, next_step = (
            tf.function(function, reduce_retracing=True, autograph=False)
            for function in (one_step, next_step)
        )

    ended: list = []  # The iterator that gave fewer steps than one call takes.

    def steps(iterator):
        if model.steps_per_execution == 1 and hasattr(iterator, "get_next"):
            return next_step(iterator)
        if iterator in ended:
            # A distributed one would begin again.
            ended.clear()
            raise StopIteration
        logs = None
        for _ in range(model.steps_per_execution):
            try:
                # Not in one graph, where an end would count as an update.
                logs = one_step(next(iterator))
            except StopIteration:
                if logs is None:
                    raise
                ended[:] = [iterator]
                break
        return logs

    return steps
