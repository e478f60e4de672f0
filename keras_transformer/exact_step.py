"""One training step that is exact, on one replica or many (section 5.1).

The gradient of a global batch is the sum over the target tokens of all
replicas and micro-batches, divided by their global count. Keras takes the mean
of each replica instead, so a replica with few tokens weighs as much as one with
many.

TensorFlow is imported only where it is Keras's backend.

Axes: B batch, S source length, T target length, M rows of a micro-batch.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import keras_internals, losses, replicas
from keras_transformer.config import PAD_ID, SettingError
from keras_transformer.keras_internals import Tensor
from keras_transformer.layers import TiedEmbedding
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.optimizers import Adam as Adam  # Found in files so.
from keras_transformer.settings import whole_number

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf


class ExactModel(keras_internals.BuiltFromSpec):
    """The part of a `Transformer` that trains, under every strategy.

    Its logits are `embedding.logits(features(inputs, training))`, unless a
    subclass has another `call`.

    On TensorFlow, compiled with `SmoothedCrossEntropy`, it takes exact steps:
    as on one device, however the replicas share a batch. Without metrics and
    without a `compute_metrics` of yours, it adds some that cost nothing. Like
    `loss`, `perplexity` (of the unsmoothed likelihood) is over all target
    tokens of the epoch so far; of the last batch alone, over all replicas, are
    `batch_loss`, `batch_perplexity`, `gradient_norm` (the loss scale taken out)
    and `tokens`, the number of target tokens. `evaluate` adds `token_accuracy`
    and `perplexity`. Metrics of yours are those of all replicas at the end of
    an epoch, and of the first replica in the logs of a batch. Keras's own
    metrics and losses, such as `"accuracy"`, count padding too; those of
    `keras_transformer` do not.

    With another loss, `fit` is Keras's own, with what its documentation says of
    several replicas.

    Make one `MirroredStrategy` per process: TensorFlow mistakes a second one's
    collectives for the first one's, and fails, with any Keras model.
    """

    embedding: TiedEmbedding
    features: Callable[..., Tensor]
    vocab_size: int
    train_function: Any
    test_function: Any
    adds_metrics = False
    _has_seen_a_batch = False
    # Returns the metrics that `compile` added; at first none.
    _added_metrics: Callable[[], list] = list

    def call(
        self, inputs: tuple[Tensor, Tensor], training: bool = False
    ) -> Tensor:
        return self.embedding.logits(self.features(inputs, training))

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        *,
        jit_compile: bool | str = "auto",
        accumulate: int = 1,
        **kwargs: Any,
    ) -> None:
        """Compile as `keras.Model` does, in the scope of the model's strategy.

        Args:
            optimizer: As for `keras.Model`.
            loss: As for `keras.Model`.
            jit_compile: Whether XLA compiles a replica's gradient in exact
                steps, under any strategy; with `"auto"` it does on GPUs.
            accumulate: Micro-batches of a replica's share of a batch, at least
                1. They run one after the other, which saves memory and changes
                nothing else. Only for exact steps without metrics.
            **kwargs: As for `keras.Model`.
        """
        on_tensorflow = keras.backend.backend() == "tensorflow"
        self.is_exact = (
            on_tensorflow
            and type(loss) is SmoothedCrossEntropy
            and loss.reduction == losses.MEAN_OF_TOKENS
            and kwargs.get("loss_weights") is None
            and type(self).compute_loss is keras.Model.compute_loss
        )
        given = [kwargs.get(name) for name in ("metrics", "weighted_metrics")]
        own = type(self).compute_metrics is not keras.Model.compute_metrics
        self.adds_metrics = self.is_exact and not (any(given) or own)
        self.accumulate = whole_number("accumulate", accumulate)
        if self.accumulate > 1 and not self.adds_metrics:
            expected = "1 with metrics, a loss or a `compute_metrics` of yours"
            expected += ", or off TensorFlow"
            raise SettingError("accumulate", expected, accumulate)
        self._given_jit_compile = jit_compile
        self._added_metrics, self.xla = list, False
        if not on_tensorflow:
            return super().compile(
                optimizer, loss, jit_compile=jit_compile, **kwargs
            )
        if self.is_exact:
            if replicas.is_replicated(self):
                kwargs["steps_per_execution"] = 1
            # Keras's own switch is off under a strategy, whose collectives XLA
            # cannot compile. The gradient is nearly the whole step.
            on_gpus = bool(tf.config.list_logical_devices("GPU"))
            self.xla = bool(on_gpus if jit_compile == "auto" else jit_compile)
            jit_compile = False
        # Keras must turn names into objects inside the scope.
        with self.distribute_strategy.scope():
            if self.adds_metrics:
                added = [
                    metric(ignore_class=loss.ignore_class)
                    for metric in (losses.TokenAccuracy, losses.Perplexity)
                ]
                # In a function, where Keras finds no weights to save.
                self._added_metrics = lambda: added
            super().compile(optimizer, loss, jit_compile=jit_compile, **kwargs)

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Fit as `keras.Model` does, after a look at the first batch.

        The first batch of a `tf.data.Dataset` is read once more, unless
        `kt.batches` has made it. All arguments are those of `keras.Model.fit`,
        but for `class_weight`: Keras would weigh a target by one of its tokens.
        It warns of targets that are not shifted.
        """
        check_first_batch(self, x, y, kwargs.get("class_weight"))
        return super().fit(x, y, *args, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: None = None,
        return_dict: bool = False,
    ) -> Any:
        """Train on one batch as `fit` does, after a look at the first.

        Compiled without metrics, it returns the loss alone, unless
        `return_dict` asks for all figures of the step.
        """
        if not self._has_seen_a_batch or class_weight is not None:
            check_first_batch(self, x, y, class_weight)
        self._has_seen_a_batch = True
        only_loss = self.adds_metrics and not return_dict
        logs = super().train_on_batch(
            x, y, sample_weight, return_dict=return_dict or only_loss
        )
        return logs["loss"] if only_loss else logs

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        kept = super().metrics
        if self.adds_metrics:  # Keras keeps those of an earlier `compile`.
            kept = [each for each in kept if each.name != "compile_metrics"]
        return [*kept, *self._added_metrics()]

    def _mean_loss(self):
        """Return Keras's own metric of the loss."""
        return next(mean for mean in self.metrics if mean.name == "loss")

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if config:
            # As it was given: Keras notes what `"auto"` became here.
            config["jit_compile"] = self._given_jit_compile
            config["accumulate"] = self.accumulate
            seeds = map(ops.convert_to_numpy, replicas.seeds_of(self))
            config["seeds"] = [x.tolist() for x in seeds]
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras does not compile a loaded model that overrides `compile`.
        config = keras.saving.deserialize_keras_object(config)
        seeds = config.pop("seeds", ())
        self.compile(**config)
        # Keras gives loaded layers new seeds.
        for state, seed in zip(replicas.seeds_of(self), seeds, strict=False):
            state.assign(seed)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force: bool = False) -> Any:
        if not self.optimizer.built:
            # Variables made in the first step would have it traced twice.
            self.optimizer.build(self.trainable_variables)
        if not (self.is_exact and replicas.is_replicated(self)):
            return super().make_train_function(force)
        if self.train_function is None or force:
            self.train_function = replicas.step_function(self, self.train_step)

    def make_test_function(self, force: bool = False) -> Any:
        if not (self.is_exact and replicas.is_replicated(self)):
            return super().make_test_function(force)
        if self.test_function is None or force:
            self.test_function = replicas.step_function(self, self.test_step)

    def test_step(self, *args: Any) -> Any:
        if not self.is_exact:
            return super().test_step(*args)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        logits = self(x, training=False)
        smoothing = self.loss.label_smoothing
        smoothed, _ = losses.token_cross_entropies(y, logits, smoothing)
        smoothed += self._added_loss()
        weights = losses.token_weights(y, sample_weight, self.loss.ignore_class)
        # Flatten, or Keras first takes the mean of each row.
        self._mean_loss().update_state(
            ops.reshape(smoothed, (-1,)), ops.reshape(weights, (-1,))
        )
        for metric in self._added_metrics():
            metric.update_state(y, logits, sample_weight)
        return self.compute_metrics(x, y, logits, sample_weight)

    def train_step(self, *args: Any) -> Any:
        if not self.is_exact:
            return super().train_step(*args)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        weights = losses.token_weights(y, sample_weight, self.loss.ignore_class)
        count = replicas.sum_over_replicas(tf.reduce_sum(weights))
        divisor = replicas.safe_count(count)
        sums, gradients, logits = self._gradients_of(x, y, weights, divisor)
        sums, gradients = replicas.sum_over_replicas((sums, gradients))
        # Read before the update, which may change the scale.
        scale = self.optimizer.scale_loss(1.0)
        with keras_internals.summed_gradients(self.optimizer):
            self.optimizer.apply(gradients, self.trainable_variables)
        loss, plain = tf.unstack(sums / divisor)
        tracker = self._mean_loss()
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

    def _gradients_of(self, *batch):
        """Call `_gradients`, by XLA if asked to, on all micro-batches."""
        gradients_of = self._gradients
        if self.xla and not self.run_eagerly:
            gradients_of = tf.function(
                gradients_of, jit_compile=True, autograph=False
            )
        if self.accumulate == 1:
            return gradients_of(*batch)
        return self._accumulated(gradients_of, *batch)

    def _gradients(self, x, y, weights, divisor):
        """Compute both losses' sums `(2,)`, gradients, and logits."""
        with tf.GradientTape() as tape:
            smoothing, logits = self.loss.label_smoothing, None
            is_own = type(self).call is not ExactModel.call
            if self.adds_metrics and not (is_own or self.embedding.use_bias):
                # Faster than logits and loss apart, and the same.
                keras_internals.clear_losses(self)
                features = self.features(x, training=True)
                smoothed, plain = losses.tied_cross_entropies(
                    y, features, self.embedding.table, smoothing
                )
            else:
                logits = self(x, training=True)
                smoothed, plain = losses.token_cross_entropies(
                    y, logits, smoothing
                )
            total = tf.reduce_sum(smoothed * weights)
            parts = tf.distribute.get_strategy().num_replicas_in_sync
            # Divided by `divisor` and summed over parts, it counts once.
            share = 1 / (parts * self.accumulate)
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

    def _accumulated(self, gradients_of, x, y, weights, divisor):
        """Sum up gradients over micro-batches of the same rows."""
        batch = tf.nest.map_structure(self._micro_batches, (x, y, weights))
        zeros = [tf.zeros_like(v) for v in self.trainable_variables]
        start = tf.constant(0), tf.zeros(2), zeros

        def add(i, sums, gradients):
            part = tf.nest.map_structure(lambda rows: rows[i], batch)
            new_sums, new, _ = gradients_of(*part, divisor)
            gradients = tf.nest.map_structure(tf.add, gradients, new)
            return i + 1, sums + new_sums, gradients

        return *tf.while_loop(
            lambda i, *_: i < self.accumulate, add, start, parallel_iterations=1
        )[1:], None

    def _micro_batches(self, rows):
        """Split rows, padding where needed: `(B, …)` to `(count, M, …)`."""
        number, *others = tf.unstack(tf.shape(rows))
        rows = tf.pad(
            rows, [[0, -number % self.accumulate], *[[0, 0]] * len(others)]
        )
        # Every count-th row, so that lengths are spread evenly.
        rows = tf.reshape(rows, (-1, self.accumulate, *others))
        return ops.swapaxes(rows, 0, 1)


def pair_of_ids(inputs: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs of a call, `(source, target_in)`, or refuse others."""
    if isinstance(inputs, list | tuple) and len(inputs) == 2:
        one, other = (tuple(getattr(ids, "shape", ())) for ids in inputs)
        fits = len(one) == len(other) == 2 and len({one[0], other[0], None}) < 3
        to_come = map(keras_internals.ids_to_come, inputs)
        if fits and all("int" in _kind_of(ids) for ids in to_come):
            return tuple(inputs)
    raise ValueError(
        "`inputs` must be a pair `(source, target_in)` of integer tensors "
        "`(B, S)` and `(B, T)`. Received: "
        f"{keras.tree.map_structure(_kind_of, inputs)}"
    )


def _kind_of(ids: Any) -> str:
    if not hasattr(ids, "shape") or hasattr(ids, "row_lengths"):
        return type(ids).__name__
    return f"{keras.backend.standardize_dtype(ids.dtype)}{tuple(ids.shape)}"


def check_first_batch(model: ExactModel, x: Any, y: Any, by_class: Any) -> None:
    """Refuse what is no batch of ids; warn of targets that are not shifted.

    Of a dataset it reads the first batch, of `kt.batches` only the size of the
    vocabulary. Data that a look would use up, such as a generator's, passes.
    """
    if by_class is not None:
        expected = "None; `sample_weight` (B, T) weighs the tokens"
        raise SettingError("class_weight", expected, by_class)
    if hasattr(x, "element_spec") and hasattr(x, "take"):
        if getattr(x, "has_begin_tokens", False):
            return _check_largest(getattr(x, "vocab_size", 0) - 1, model)
        x, y = [*next(iter(x.take(1)), ()), None, None][:2]
    is_pair = isinstance(x, list | tuple) and len(x) == 2
    if not is_pair or not all(hasattr(ids, "shape") for ids in x):
        return
    ids = [ops.convert_to_numpy(each) for each in pair_of_ids(x)]
    target_in, shape = ids[1], ids[1].shape
    is_like = getattr(y, "shape", None) in (shape, (*shape, 1))
    if is_like:
        y = np.reshape(ops.convert_to_numpy(y), shape)
    if isinstance(getattr(model, "loss", None), SmoothedCrossEntropy):
        if not is_like or np.any(y % 1):
            raise ValueError(
                "`y` must be `target_out`, dense and whole ids of the shape of "
                f"`target_in`, {shape}. Received: {_kind_of(y)}"
            )
        ids.append(y)
    _check_largest(max(each.max(initial=0) for each in ids), model)
    begins = target_in[target_in[:, 0] > PAD_ID, 0]
    is_copy = is_like and np.array_equal(target_in[:, 0], y[:, 0])
    is_late = any(np.any(each[each.any(axis=1), 0] == PAD_ID) for each in ids)
    if is_late or len(np.unique(begins)) > 1 or (is_copy and len(begins)):
        warnings.warn(
            "Padding must come last, and `target_in` must begin with the begin "
            "token, the same in every row, and `target_out` without it, one "
            "place further left: otherwise a model translates badly, or only "
            "copies its target. `kt.batch` makes a batch of texts.",
            stacklevel=3,  # The caller of `fit`.
        )


def _check_largest(largest: int, model: ExactModel) -> None:
    """Refuse ids that the model has no pieces for."""
    if largest >= model.vocab_size:
        raise ValueError(
            f"Ids must be below {model.vocab_size}, the `vocab_size` of the "
            f"model; padding is {PAD_ID}. Received: {largest}"
        )
