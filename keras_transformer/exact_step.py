"""One training step that is exact, on one replica or many (section 5.1).

The gradient of a global batch is the sum over the target tokens of all
replicas and micro-batches, divided by their global count. Keras takes the mean
of each replica instead, so a replica with few tokens weighs as much as one with
many.

A part of the model wing: TensorFlow is imported inside functions, and only
where it is Keras's backend.

Axes: B batch, S source length, T target length, M rows of a micro-batch.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer import keras_internals
from keras_transformer.config import SettingError
from keras_transformer.keras_internals import Tensor
from keras_transformer.losses import (
    SmoothedCrossEntropy,
    tied_cross_entropies,
    token_cross_entropies,
    token_weights,
)
from keras_transformer.metrics import Perplexity, TokenAccuracy
from keras_transformer.replicas import (
    local_values,
    safe_count,
    sum_over_replicas,
)


class ExactModel(keras.Model):
    """A `keras.Model` whose `fit` and `evaluate` work under every strategy.

    Its logits are `embedding.logits(features(inputs, training))`, unless a
    subclass has another `call`.

    On TensorFlow, compiled with `SmoothedCrossEntropy`, it takes exact steps:
    as on one device, however the replicas share a batch. Compiled without
    metrics, it adds some that cost nothing. Like `loss`, `perplexity` (of the
    unsmoothed likelihood) is over all target tokens of the epoch so far; of
    the last batch alone, over all replicas, are `batch_loss`,
    `batch_perplexity`, `gradient_norm` (the loss scale taken out) and `tokens`,
    the number of target tokens. `evaluate` adds `token_accuracy` and
    `perplexity`. Keras's own metrics and losses, such as `"accuracy"`, count
    padding too; those of `keras_transformer` do not.

    With another loss it runs Keras's own `fit`, with some repairs for several
    replicas:

    - Keras builds metrics on the mean of the replicas' batches, which does not
      exist for unequal shapes. Here they are built from the declared shapes.
    - Keras clips gradients, and asks whether they are finite, before it sums
      them. Here they are summed first, so that several replicas train as one.
    - Keras's logs of a batch are means of what each replica has seen. Here
      they cover all replicas at once.
    - Keras's loop of several steps per call fails on finite data, and its logs
      fail with several workers. Here both work; each step is its own call.

    Make one `MirroredStrategy` per process: TensorFlow mistakes a second one's
    collectives for the first one's, and fails, with any Keras model.
    """

    train_function: Any
    test_function: Any
    _added_metrics: Callable[[], tuple] = tuple

    def call(
        self, inputs: tuple[Tensor, Tensor], training: bool = False
    ) -> Tensor:
        return self.embedding.logits(self.features(inputs, training))

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        *args: Any,
        jit_compile: bool | str = "auto",
        accumulate: int = 1,
        **kwargs: Any,
    ) -> None:
        """Compile as `keras.Model` does, in the scope of the model's strategy.

        Args:
            optimizer: As for `keras.Model`.
            loss: As for `keras.Model`.
            *args: As for `keras.Model`.
            jit_compile: Whether XLA compiles a replica's gradient in exact
                steps, under any strategy; with `"auto"` it does on GPUs.
            accumulate: Micro-batches of a replica's share of a batch, at least
                1. They run one after the other, which saves memory and changes
                nothing else. Only for exact steps without metrics.
            **kwargs: As for `keras.Model`.

        Raises:
            ValueError: If the strategy cannot train this way, or `accumulate`
                is below 1 or does not apply.
        """
        on_tensorflow = keras.backend.backend() == "tensorflow"
        names = (
            *("loss_weights", "metrics", "weighted_metrics"),
            *("run_eagerly", "steps_per_execution"),
        )
        kwargs |= dict(zip(names, args, strict=False))
        self.is_exact = (
            on_tensorflow
            and type(loss) is SmoothedCrossEntropy
            and kwargs.get("loss_weights") is None
            and type(self).compute_loss is keras.Model.compute_loss
        )
        given = [kwargs.get(name) for name in ("metrics", "weighted_metrics")]
        self.adds_metrics = self.is_exact and not any(given)
        if accumulate < 1 or accumulate > 1 and not self.adds_metrics:
            raise SettingError(
                "accumulate",
                "at least 1, and 1 with metrics or another loss",
                accumulate,
            )
        self.accumulate = accumulate
        self._given_jit_compile = jit_compile
        self.xla = False
        self._added_metrics = tuple
        if not on_tensorflow:
            return super().compile(
                optimizer, loss, jit_compile=jit_compile, **kwargs
            )
        # Keras must turn names into objects inside the scope.
        with self.distribute_strategy.scope():
            if self.adds_metrics:
                added = TokenAccuracy(), Perplexity()
                # In a function, where Keras finds no weights to save.
                self._added_metrics = lambda: added
                kwargs |= {"metrics": None, "weighted_metrics": None}
                keras_internals.forget_metrics(self)
            if self.is_exact:
                # Keras's own switch is off under a strategy, whose collectives
                # XLA cannot compile. The gradient is nearly the whole step.
                self._compile_gradients(jit_compile)
                jit_compile = False
            super().compile(optimizer, loss, jit_compile=jit_compile, **kwargs)
            _check_optimizer(self)
            if _strategy_of(self) is not None:
                _check_replicated_step(self)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [*super().metrics, *self._added_metrics()]

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if not config:
            return config
        seeds = [
            ops.convert_to_numpy(generator.state).tolist()
            for generator in keras_internals.seed_generators(self)
        ]
        return {
            **config,
            # As it was given: Keras notes what `"auto"` became here.
            "jit_compile": self._given_jit_compile,
            "accumulate": self.accumulate,
            "seeds": seeds,
        }

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras does not compile a loaded model that overrides `compile`.
        config = keras.saving.deserialize_keras_object(config)
        seeds = config.pop("seeds", ())
        self.compile(**config)
        # Keras gives loaded layers new seeds.
        generators = keras_internals.seed_generators(self)
        for generator, seed in zip(generators, seeds, strict=False):
            generator.state.assign(seed)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:
            data_batch = keras_internals.replica_spec(iterator)
        super()._maybe_symbolic_build(data_batch=data_batch)

    def make_train_function(self, force: bool = False) -> Any:
        if not self.optimizer.built:
            # Variables made in the first step would have it traced twice.
            self.optimizer.build(self.trainable_variables)
        strategy = _strategy_of(self)
        if strategy is None:
            return super().make_train_function(force)
        if self.train_function is None or force:
            is_ours = type(self).train_step is ExactModel.train_step
            self.train_function = _step_function(
                self, strategy, self.train_step, self.adds_metrics and is_ours
            )
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        strategy = _strategy_of(self)
        if strategy is None:
            return super().make_test_function(force)
        if self.test_function is None or force:
            self.test_function = _step_function(self, strategy, self.test_step)
        return self.test_function

    def train_step(self, *args: Any) -> Any:
        if self.is_exact:
            return self._exact_step(
                *keras.utils.unpack_x_y_sample_weight(*args)
            )
        if _strategy_of(self) is None:
            return super().train_step(*args)
        optimizer: Any = self.optimizer
        optimizer.apply_gradients = self._apply_sum
        try:
            return super().train_step(*args)
        finally:
            # The replicas of a strategy are threads, and each one gets here.
            vars(optimizer).pop("apply_gradients", None)

    def test_step(self, *args: Any) -> Any:
        if not self.is_exact:
            return super().test_step(*args)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        logits = self(x, training=False)
        smoothed, _ = token_cross_entropies(
            y, logits, self.loss.label_smoothing
        )
        smoothed += self._added_loss()
        # Flatten, or Keras first takes the mean of each row.
        keras_internals.loss_tracker(self).update_state(
            ops.reshape(smoothed, (-1,)),
            sample_weight=ops.reshape(token_weights(y, sample_weight), (-1,)),
        )
        for metric in self._added_metrics():
            metric.update_state(y, logits, sample_weight)
        return self.compute_metrics(x, y, logits, sample_weight)

    def _exact_step(self, x, y, sample_weight):
        import tensorflow as tf

        weights = token_weights(y, sample_weight)
        count = sum_over_replicas(tf.reduce_sum(weights))
        divisor = safe_count(count)
        gradients_of = self._gradient_graph
        if self.accumulate > 1:
            gradients_of = self._accumulated
        sums, gradients, logits = gradients_of(x, y, weights, divisor)
        sums, gradients = sum_over_replicas((sums, gradients))
        # Read before the update, which may change the scale.
        scale = self.optimizer.scale_loss(1.0)
        self._apply(gradients)
        loss, plain = tf.unstack(sums / divisor)
        tracker = keras_internals.loss_tracker(self)
        tracker.update_state(loss, sample_weight=count)
        if not self.adds_metrics:
            return self.compute_metrics(x, y, logits, sample_weight)
        norm = tf.linalg.global_norm(gradients)
        _, perplexity = self._added_metrics()
        perplexity.add(plain, count)
        return {
            "loss": tracker.result(),
            "perplexity": perplexity.result(),
            "batch_loss": loss,
            "batch_perplexity": tf.exp(plain),
            "gradient_norm": tf.cast(norm, tf.float32) / scale,
            "tokens": count,
        }

    def _apply_sum(self, gradients_and_variables):
        """Sum gradients over replicas, then apply them."""
        import tensorflow as tf

        gradients, _ = zip(*gradients_and_variables, strict=True)
        # Make all gradients dense, even the gradient of the tied matrix.
        found = {
            i: tf.convert_to_tensor(gradient)
            for i, gradient in enumerate(gradients)
            if gradient is not None
        }
        summed = sum_over_replicas(found)
        self._apply([summed.get(i) for i in range(len(gradients))])

    def _apply(self, gradients):
        with keras_internals.summed_gradients(self.optimizer):
            # The class's, which `train_step` may have covered.
            type(self.optimizer).apply_gradients(
                self.optimizer,
                zip(gradients, self.trainable_variables, strict=True),
            )

    def _compile_gradients(self, jit_compile):
        import tensorflow as tf

        if jit_compile == "auto":
            jit_compile = bool(tf.config.list_logical_devices("GPU"))
        self.xla = jit_compile
        self._gradient_graph = self._gradients
        if not self.xla:
            return
        ids = tf.TensorSpec([None, None], tf.int32)
        weights = tf.TensorSpec([None, None], tf.float32)
        divisor = tf.TensorSpec([], tf.float32)

        @tf.function(
            input_signature=[ids] * 3 + [weights, divisor],
            jit_compile=True,
            autograph=False,
        )
        def gradients(source, target_in, *rest):
            return self._gradients((source, target_in), *rest)

        self._gradient_graph = lambda x, y, *rest: gradients(
            *(tf.cast(ids, tf.int32) for ids in (*x, y)), *rest
        )

    def _gradients(self, x, y, weights, divisor):
        """Compute both losses' sums `(2,)`, gradients, and logits."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            smoothing, logits = self.loss.label_smoothing, None
            if self.adds_metrics and type(self).call is ExactModel.call:
                keras_internals.clear_losses(self)
                features = self.features(x, training=True)
                smoothed, plain = tied_cross_entropies(
                    y, *self.embedding.factors(features), smoothing
                )
            else:
                logits = self(x, training=True)
                smoothed, plain = token_cross_entropies(y, logits, smoothing)
            total = tf.reduce_sum(smoothed * weights)
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            share = 1 / (replicas * self.accumulate)
            total += divisor * share * self._added_loss()
            scaled = self.optimizer.scale_loss(total / divisor)
        # Make all gradients dense, even the gradient of the tied matrix.
        variables = self.trainable_variables
        gradients = [
            tf.zeros_like(variable)
            if gradient is None
            else tf.convert_to_tensor(gradient)
            for variable, gradient in zip(
                variables, tape.gradient(scaled, variables), strict=True
            )
        ]
        sums = tf.stack([total, tf.reduce_sum(plain * weights)])
        return sums, gradients, logits

    def _added_loss(self):
        """Add up what `add_loss` and regularizers add to the loss."""
        return sum(ops.cast(ops.sum(loss), "float32") for loss in self.losses)

    def _accumulated(self, x, y, weights, divisor):
        """Sum up `_gradients` over micro-batches of the same rows."""
        import tensorflow as tf

        batch = tf.nest.map_structure(self._micro_batches, (x, y, weights))
        start = (
            tf.constant(0),
            tf.zeros(2),
            [tf.zeros_like(v) for v in self.trainable_variables],
        )

        def add(i, sums, gradients):
            part = tf.nest.map_structure(lambda rows: rows[i], batch)
            new_sums, new, _ = self._gradient_graph(*part, divisor)
            gradients = [
                old + one for old, one in zip(gradients, new, strict=True)
            ]
            return i + 1, sums + new_sums, gradients

        return *tf.while_loop(
            lambda i, *_: i < self.accumulate, add, start, parallel_iterations=1
        )[1:], None

    def _micro_batches(self, rows):
        """Split rows, padding where needed: `(B, T)` to `(count, M, T)`."""
        import tensorflow as tf

        number, length = tf.unstack(tf.shape(rows))
        rows = tf.pad(rows, [[0, -number % self.accumulate], [0, 0]])
        # Every count-th row, so that lengths are spread evenly.
        rows = tf.reshape(rows, (-1, self.accumulate, length))
        return tf.transpose(rows, (1, 0, 2))

    def predict_on_batch(self, x: Any) -> Any:
        outputs = super().predict_on_batch(x)
        if _strategy_of(self) is None:
            return outputs
        # Every replica predicts the whole batch.
        rows = len(keras.tree.flatten(x)[0])
        return keras.tree.map_structure(lambda all: all[:rows], outputs)


def _strategy_of(model: keras.Model) -> Any:
    """Return the strategy that Keras's own `fit` fails under, or `None`."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    strategy = model.distribute_strategy
    # Under a strategy for workers, Keras's logs fail even with a single worker.
    workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return strategy if workers or strategy.num_replicas_in_sync > 1 else None


def _check_optimizer(model):
    """Refuse an optimizer whose variables belong to another strategy."""
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
    model: keras.Model, strategy: Any, step: Callable, alike: bool = False
) -> Callable:
    """Make the function that Keras calls for `steps_per_execution` steps.

    It takes an iterator, TensorFlow's or Python's, and returns the logs of the
    last step. `step` makes logs from a replica's batch; `alike` says that all
    replicas make the same logs.
    """
    import tensorflow as tf

    def step_of_replica(batch):
        def given(x):
            return None if isinstance(x, tf.experimental.Optional) else x

        return step(tf.nest.map_structure(given, batch))

    def one_step(batch):
        logs = strategy.run(step_of_replica, args=(batch,))
        if alike:
            return local_values(strategy, logs)
        # Metrics over all replicas, not the mean of each replica's own.
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

    ended: list = []  # The iterator that ended in the middle of a call.

    def steps(iterator):
        if model.steps_per_execution == 1 and hasattr(iterator, "get_next"):
            return next_step(iterator)
        if iterator in ended:
            # A distributed iterator would begin again.
            ended.clear()
            raise StopIteration
        logs = None
        for _ in range(model.steps_per_execution):
            try:
                # Run steps separately: in a single graph, reaching the end of
                # the data would still apply an update.
                logs = one_step(next(iterator))
            except StopIteration:
                if logs is None:
                    raise
                ended[:] = [iterator]
                break
        return logs

    return steps
