"""Token accuracy and perplexity, weighted by real tokens.

Axes: B batch, T target length, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.keras_internals import Tensor
from keras_transformer.losses import token_cross_entropies, token_weights


class _TokenMean(keras.metrics.Mean):
    """The mean of a value of each target token; padding does not count."""

    def update_state(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> None:
        y_true = ops.convert_to_tensor(y_true)
        weights = token_weights(y_true, sample_weight)
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
        name: The metric's name in logs.

    Call arguments:
        y_true: Integer tensor `(B, T)`.
        y_pred: Float tensor `(B, T, V)`, logits.
    """

    def __init__(self, name: str = "token_accuracy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        best = ops.cast(ops.argmax(y_pred, axis=-1), y_true.dtype)
        return ops.cast(ops.equal(best, y_true), "float32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMean):
    """Exponential of the mean cross-entropy per token, without smoothing.

    Table 3 counts per word piece, and so does this.

    Args:
        name: The metric's name in logs.

    Call arguments:
        y_true: Integer tensor `(B, T)`.
        y_pred: Float tensor `(B, T, V)`, logits.
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return token_cross_entropies(y_true, y_pred)[1]

    def result(self) -> Tensor:
        return ops.exp(super().result())
