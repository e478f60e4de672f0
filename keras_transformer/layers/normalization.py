"""Layer normalisation (section 3.1, after Ba et al., 2016).

Axes: D model width, N rows of all leading axes.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.config import checked
from keras_transformer.keras_internals import Tensor
from keras_transformer.layers.dot_product import at_least_float32


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer over the last axis, with a gradient written by hand.

    Automatic differentiation goes back through every mean and difference,
    which is slower. Statistics are float32 under half-precision policies.

    Args:
        epsilon: Added to the variance, above 0.
        **kwargs: Passed to `keras.layers.LayerNormalization`, such as `name`
            and `dtype`.

    Call arguments:
        inputs: Float tensor `(..., D)`.
        training: Whether gradients will be needed.

    Returns:
        Float tensor `(..., D)` in the layer's compute dtype.

    Raises:
        SettingError: If `epsilon` is not above 0; it is a `ValueError`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=checked("norm_epsilon", epsilon), **kwargs)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return self._normed(inputs)
        dtype = at_least_float32(self.compute_dtype)
        normed = _normalise(
            ops.cast(ops.reshape(inputs, (-1, inputs.shape[-1])), dtype),
            # Pass values: a variable's gradient would go another way.
            ops.cast(ops.reshape(self.gamma, (-1,)), dtype),
            ops.cast(ops.reshape(self.beta, (-1,)), dtype),
            self.epsilon,
        )
        normed = ops.reshape(normed, ops.shape(inputs))
        return ops.cast(normed, self.compute_dtype)

    def _normed(self, inputs):
        """Normalise in fewer passes than Keras, with no gradient by hand."""
        dtype = at_least_float32(self.compute_dtype)
        x = ops.cast(inputs, dtype)
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + self.epsilon)
        scale = scale * ops.cast(self.gamma, dtype)
        normed = centred * scale + ops.cast(self.beta, dtype)
        return ops.cast(normed, self.compute_dtype)


def _normalise(rows, gamma, beta, epsilon):
    """Normalise every row: `(N, D)`, `(D,)`, `(D,)` to `(N, D)`."""
    width = rows.shape[-1]

    @ops.custom_gradient
    def normalise(rows, gamma, beta):
        centred = rows - ops.mean(rows, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)  # (N, 1)
        normed = centred * scale

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            product = upstream * normed
            # Compute sums over an axis as matrix products, which use all cores.
            ones = ops.ones((1, ops.shape(upstream)[0]), upstream.dtype)
            mean = ops.reshape(gamma / width, (-1, 1))
            to_rows = scale * (
                upstream * gamma
                - ops.matmul(upstream, mean)
                - normed * ops.matmul(product, mean)
            )
            return (
                to_rows,
                ops.reshape(ops.matmul(ones, product), (-1,)),
                ops.reshape(ops.matmul(ones, upstream), (-1,)),
            )

        return normed * gamma + beta, gradient

    return normalise(rows, gamma, beta)
