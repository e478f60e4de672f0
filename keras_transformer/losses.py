"""Cross-entropy with label smoothing (section 5.4), and metrics.

All are means over the real tokens.

Axes: B batch, T target length, D model width, V vocabulary, N = B·T tokens.
"""

import functools
from typing import Any

import keras
from keras import ops

from keras_transformer.config import PAD_ID, checked
from keras_transformer.keras_internals import Tensor, implicit_mask
from keras_transformer.replicas import mean_over_replicas

_LEAST = 1.2e-38  # The least normal float32, rounded up.
MEAN_OF_TOKENS = "mean_with_sample_weight"  # As Keras calls it.


def token_cross_entropies(
    target: Tensor, logits: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute smoothed and plain cross-entropy of every position.

    It builds no distribution `(B, T, V)`. The reference puts
    `1 - label_smoothing` on the target and spreads `label_smoothing` evenly
    over the whole vocabulary (Szegedy et al., 2015); against the logits `x`
    that costs `logsumexp(x) - (1 - s) * x[target] - s * mean(x)`.

    The gradient is written by hand, which is faster: softmax minus the
    reference, the latter as one constant and one value per row.

    Returns:
        Of ids `(B, T)` and logits `(B, T, V)`, two float32 tensors `(B, T)` in
        nats: the smoothed cross-entropy, and the plain one, which passes no
        gradient. Padding is not treated specially.
    """
    _check_shape(target, logits)
    vocab_size = logits.shape[-1]
    flat_target, smoothing = _flat(target), float(label_smoothing)
    flat_logits = ops.reshape(ops.cast(logits, "float32"), (-1, vocab_size))
    losses = ops.custom_gradient(
        lambda logits: _cross_entropies(flat_target, smoothing, logits)
    )
    return _shaped(losses(flat_logits), target)


def _cross_entropies(target, smoothing, logits):
    """Return both losses `(2, N)` of `(N,)`, `(N, V)`, and their gradient."""
    probabilities = ops.softmax(logits)  # (N, V)
    # The largest entry is at least 1 / V: its logarithm is always finite, and
    # it saves another pass for the sum of exponentials.
    largest = ops.max(probabilities, axis=-1)
    log_sum_exp = ops.max(logits, axis=-1) - ops.log(largest)
    at_target = _pick(logits, target)
    plain = log_sum_exp - at_target
    smoothed = plain
    if smoothing:
        smoothed = plain + smoothing * (at_target - ops.mean(logits, axis=-1))
    gradient = functools.partial(_gradient, target, smoothing, probabilities)
    # Return one tensor: backends disagree on the gradients of several.
    return ops.stack([smoothed, plain]), gradient


def _gradient(target, smoothing, probabilities, *args, **named):
    """Return the gradient of the logits, `(N, V)`."""
    upstream = _upstream(*args, **named)
    gradient = probabilities * upstream
    if smoothing:
        gradient = gradient - upstream * (smoothing / probabilities.shape[-1])
    at_target = _pick(gradient, target) - upstream[:, 0] * (1.0 - smoothing)
    rows = ops.arange(ops.shape(target)[0], dtype="int32")
    indices = ops.stack([rows, target], axis=-1)
    return ops.scatter_update(gradient, indices, at_target)


def tied_cross_entropies(
    target: Tensor,
    features: Tensor,
    table: Tensor,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Fuse `token_cross_entropies` with the product `features @ table.T`.

    This is faster in training: the softmax is the only tensor `(N, V)` kept,
    and the gradient reads it twice, in matrix products. The terms of target
    and smoothing have width D.

    Returns:
        As `token_cross_entropies`, of features `(B, T, D)` and the tied matrix
        `(V, D)`. A probability below the least float32 counts as that number,
        87 nats.
    """
    vocab_size, width = table.shape
    flat_target = _flat(target)
    smoothing, dtype = float(label_smoothing), features.dtype
    losses = ops.custom_gradient(
        lambda *values: _tied(flat_target, smoothing, dtype, *values)
    )
    # A variable's value.
    table = ops.cast(ops.reshape(table, (vocab_size, width)), "float32")
    results = losses(
        ops.cast(ops.reshape(features, (-1, width)), "float32"),
        table,
        ops.take(table, flat_target, axis=0),  # (N, D)
    )
    return _shaped(results, target)


def _tied(target, smoothing, dtype, features, table, at_target):
    """Return both losses `(2, N)` of features `(N, D)`, and their gradient."""
    kernel = ops.cast(table, dtype)
    logits = ops.matmul(ops.cast(features, dtype), ops.transpose(kernel))
    probabilities = ops.softmax(ops.cast(logits, "float32"))  # (N, V)
    plain = -ops.log(ops.maximum(_pick(probabilities, target), _LEAST))
    mean = ops.mean(table, axis=0, keepdims=True)  # (1, D)
    smoothed = plain + smoothing * ops.sum(
        features * (at_target - mean), axis=-1
    )
    kept = smoothing, features, kernel, at_target, probabilities, mean
    gradient = functools.partial(_tied_gradient, *kept)
    return ops.stack([smoothed, plain]), gradient


def _tied_gradient(
    smoothing, features, kernel, at_target, probabilities, mean, *args, **named
):
    """Return the gradients of features, table and its target rows."""
    upstream = _upstream(*args, **named)
    weighted = upstream * features
    p = ops.cast(probabilities, kernel.dtype)
    expected = ops.cast(ops.matmul(p, kernel), "float32")
    to_table = ops.matmul(ops.transpose(p), ops.cast(weighted, kernel.dtype))
    return (
        upstream * (expected - smoothing * mean - (1 - smoothing) * at_target),
        ops.cast(to_table, "float32")
        - smoothing / kernel.shape[0] * ops.sum(weighted, axis=0),
        (smoothing - 1) * weighted,
    )


def _upstream(*args, upstream=None):
    """Return the gradient of the smoothed losses `(N, 1)`."""
    # PyTorch gives the gradient of both losses by its name.
    return (args[0] if upstream is None else upstream)[0][:, None]


def _flat(target):
    """Flatten ids, those below 0 as padding: `(B, T)` to int32 `(N,)`."""
    return ops.maximum(ops.cast(ops.reshape(target, (-1,)), "int32"), PAD_ID)


def _shaped(losses, target):
    """Return both losses `(2, N)` in the shape of the target."""
    return tuple(
        ops.reshape(loss, ops.shape(target)) for loss in ops.unstack(losses, 2)
    )


def _pick(rows, columns):
    """Pick one value of each row: `(N, V)`, `(N,)` to `(N,)`."""
    picked = ops.take_along_axis(rows, columns[:, None], axis=-1)
    return ops.squeeze(picked, axis=-1)


@keras.saving.register_keras_serializable(package="keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy in nats per target token.

    It is the mean over the target tokens, without padding (id 0, and any id
    below). On several replicas of a TensorFlow strategy it is the mean over the
    global batch, however unequally the replicas share the tokens.

    Args:
        label_smoothing: Epsilon of section 5.4, in [0, 1).
        ignore_class: The id of padding; None if every id from 0 on counts, but
            for what the mask that Keras attached to the logits hides, which
            the loss of `ExactModel` does not see.
        reduction: As for `keras.losses.Loss`; the mean over what counts if not
            given.
        name: The loss's name.

    Call arguments:
        y_true: Integer tensor `(B, T)`, the target with its end token.
        y_pred: Float tensor `(B, T, V)`, logits.
        sample_weight: Optional weights, broadcastable to `(B, T)`; the loss is
            then the weighted mean.

    Returns:
        Float32 scalar; 0 for a batch of nothing but padding. Each of several
        replicas returns its share, as Keras expects: the shares add up to the
        loss of the global batch, and so do their gradients.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.4.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        name: str = "smoothed_cross_entropy",
        ignore_class: int | None = PAD_ID,
        reduction: str | None = MEAN_OF_TOKENS,
    ) -> None:
        super().__init__(name=name, reduction=reduction)
        self.label_smoothing = checked("label_smoothing", label_smoothing)
        self.ignore_class = ignore_class

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return token_cross_entropies(y_true, y_pred, self.label_smoothing)[0]

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        y_true = ops.convert_to_tensor(y_true)
        padding = self.ignore_class, y_pred
        weights = token_weights(y_true, sample_weight, *padding)
        losses = self.call(y_true, y_pred) * weights
        if self.reduction in ("sum", "none", None):
            return ops.sum(losses) if self.reduction == "sum" else losses
        if self.reduction != MEAN_OF_TOKENS:  # The weights do not divide.
            weights = token_weights(y_true, None, *padding)
        return mean_over_replicas(ops.sum(losses), ops.sum(weights))

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label_smoothing": self.label_smoothing,
            "ignore_class": self.ignore_class,
            "reduction": self.reduction,
        }


def token_weights(
    target: Tensor,
    sample_weight: Tensor | None = None,
    ignore_class: int | None = PAD_ID,
    logits: Tensor = None,
) -> Tensor:
    """Weigh tokens by 1 and padding by 0: `(B, T)` to float32 `(B, T)`.

    Ids below 0, such as the -1 or -100 of others, are always padding. If no
    class is, so is what Keras's mask of `logits` hides.
    """
    if logits is not None:
        _check_shape(target, logits)
    counts, pad = ops.greater_equal(target, 0), ignore_class
    seen = implicit_mask(logits) if pad is None else ops.not_equal(target, pad)
    if seen is not None:
        counts = ops.logical_and(counts, seen)
    weights = ops.cast(counts, "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, "float32")
        missing = len(target.shape) - len(sample_weight.shape)
        if missing < 0:  # As Keras takes `(N, 1)` beside `(N,)`.
            sample_weight = ops.squeeze(sample_weight, axis=-1)
        for _ in range(missing):
            sample_weight = sample_weight[..., None]
        weights = weights * sample_weight
    return weights


def _check_shape(target, logits):
    """Refuse other targets than `(B, T)` or `(B, T, 1)`, as far as is known."""
    if None in (getattr(x.shape, "rank", 0) for x in (target, logits)):
        return
    shape, expected = tuple(target.shape), tuple(logits.shape[:-1])
    if len(shape) > len(expected) and shape[-1] == 1:
        shape = shape[:-1]
    sizes = zip(shape, expected, strict=False)
    same = all(len({*pair, None}) < 3 for pair in sizes)
    if len(shape) != len(expected) or not same:
        raise ValueError(
            f"Expected targets of the shape {expected}, as the logits "
            f"{tuple(logits.shape)} have it, received {tuple(target.shape)}."
        )


class _TokenMean(keras.metrics.Mean):
    """The mean of a value of each target token; padding does not count."""

    default_name: str

    def __init__(
        self,
        name: str | None = None,
        ignore_class: int | None = PAD_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self.default_name, **kwargs)
        self.ignore_class = ignore_class

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ignore_class": self.ignore_class}

    def update_state(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> None:
        y_true = ops.convert_to_tensor(y_true)
        weights = token_weights(
            y_true, sample_weight, self.ignore_class, y_pred
        )
        # Flatten, or Keras first takes the mean of each row.
        values = ops.reshape(self.values(y_true, y_pred), (-1,))
        self.add(values, ops.reshape(weights, (-1,)))

    def add(self, values: Tensor, weights: Tensor) -> None:
        """Add values that are known already, such as a batch's mean."""
        super().update_state(values, weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of target tokens that have the highest logit, in [0, 1].

    Args:
        name: The metric's name in logs, if not that of the class.
        ignore_class: The id of padding; None if every id from 0 on counts.

    Call arguments:
        y_true: Integer tensor `(B, T)`.
        y_pred: Float tensor `(B, T, V)`, logits.
    """

    default_name = "token_accuracy"
    _direction = "up"  # For `mode="auto"` of Keras's callbacks.

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        best = ops.reshape(ops.argmax(y_pred, axis=-1), ops.shape(y_true))
        is_right = ops.equal(best, ops.cast(y_true, best.dtype))
        return ops.cast(is_right, "float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMean):
    """Exponential of the mean cross-entropy per token, without smoothing.

    Table 3 counts per word piece, and so does this.

    Args:
        name: The metric's name in logs, if not that of the class.
        ignore_class: The id of padding; None if every id from 0 on counts.

    Call arguments:
        y_true: Integer tensor `(B, T)`.
        y_pred: Float tensor `(B, T, V)`, logits.
    """

    default_name = "perplexity"
    _direction = "down"

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return token_cross_entropies(y_true, y_pred)[1]

    def result(self) -> Tensor:
        return ops.exp(super().result())
