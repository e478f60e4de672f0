"""Position-wise feed-forward network (section 3.3).

Axes: B batch, T length, D model width.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.config import SettingError, checked
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.layer import Layer
from keras_transformer.layers.products import leading_axes, products_in_use


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(Layer):
    """Two dense layers, the same at every position (equation 2).

    A layer with an activation, the paper's ReLU, widens each position to
    `ffn_dim`, and a linear layer brings it back. Dropout, residual and
    normalisation belong to the layer that calls this one. Masking: positions
    do not mix, so Keras's mask passes unchanged.

    Args:
        ffn_dim: Inner width, the paper's d_ff. At least 1.
        activation: Activation of the wide layer: the name of one of Keras's on
            single numbers, such as `"gelu"`, or a function. To save one of your
            own, register it with `keras.saving.register_keras_serializable`.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, T, D)`.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.3.
    """

    arguments = ("ffn_dim", "activation")

    def __init__(
        self,
        ffn_dim: int,
        activation: str | Callable[..., Any] = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ffn_dim = checked("ffn_dim", ffn_dim)
        self.activation = checked("activation", activation)
        if not isinstance(activation, str):
            self.activation = keras.activations.get(activation)
        if isinstance(activation, keras.Layer):
            expected = "a name or a function: all would share a layer's weights"
            raise SettingError("activation", expected, activation)

    def build(self, input_shape: Shape) -> None:
        d_model = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: d_model})
        self.widen = self._affine("widen", d_model, self.ffn_dim)
        self.narrow = self._affine("narrow", self.ffn_dim, d_model)

    def _affine(self, name, *shape):
        """Hold a kernel, which begins as Glorot's uniform, and a bias."""
        # Keras's `Dense` knows LoRA and quantisation, which would miss
        # attention.
        layer = keras.layers.Layer(dtype=self.dtype_policy, name=name)
        layer.kernel = layer.add_weight(name="kernel", shape=shape)
        layer.bias = layer.add_weight(
            name="bias", shape=shape[1:], initializer="zeros"
        )
        layer.built = True
        return layer

    def call(self, inputs: Tensor) -> Tensor:
        # Use rank 2: `Dense` surrounds a product of rank 3 with operations on
        # shapes and leaves bias and ReLU to further passes.
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        rows = products_in_use().product(
            rows, self.widen.kernel, self.widen.bias, self.activation
        )
        rows = products_in_use().product(
            rows, self.narrow.kernel, self.narrow.bias
        )
        return ops.reshape(rows, (*leading_axes(inputs), inputs.shape[-1]))
