"""What the layers of encoder and decoder have in common (section 3.1).

A sub-layer, dropout, the residual connection and layer normalisation (Ba et
al., 2016).

Axes: B batch, T length, D model width, N rows of all leading axes.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.config import checked, head_width
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.attention import SEQUENCE, MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.products import at_least_float32
from keras_transformer.replicas import Dropout
from keras_transformer.settings import checked_value


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
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(epsilon=checked("norm_epsilon", epsilon), **kwargs)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return self._normed(inputs)
        dtype = at_least_float32(self.compute_dtype)
        normed = ops.custom_gradient(
            lambda *values: _normalise(self.epsilon, *values)
        )(
            ops.cast(ops.reshape(inputs, (-1, inputs.shape[-1])), dtype),
            # Pass values: a variable's gradient would go another way.
            ops.cast(ops.reshape(self.gamma, (-1,)), dtype),
            ops.cast(ops.reshape(self.beta, (-1,)), dtype),
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


def _normalise(epsilon, rows, gamma, beta):
    """Normalise rows `(N, D)` by `(D,)` and `(D,)`; return the gradient too."""
    centred = rows - ops.mean(rows, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)  # (N, 1)
    normed = centred * scale
    gradient = functools.partial(_gradient, normed, scale, gamma)
    return normed * gamma + beta, gradient


def _gradient(normed, scale, gamma, *args, upstream=None):
    """Return the gradients of rows, gamma and beta, as Keras asks for them."""
    if upstream is None:
        (upstream,) = args
    product = upstream * normed
    # Compute sums over an axis as matrix products, which use all cores.
    ones = ops.ones((1, ops.shape(upstream)[0]), upstream.dtype)
    mean = ops.reshape(gamma / gamma.shape[0], (-1, 1))
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


class Block(keras.layers.Layer):
    """A layer, or a stack of them, with settings of `ModelConfig`."""

    def __init__(
        self, fields: Sequence[dataclasses.Field], given: dict[str, Any]
    ) -> None:
        settings = {
            field.name: checked_value(
                field, given.pop(field.name, field.default)
            )
            for field in fields
        }
        super().__init__(**given)
        self.settings = settings
        self.supports_masking = True
        self.input_spec = SEQUENCE

    def residual(self, x, sublayer, dropout, norm, training=False):
        """Compute `LayerNorm(x + Dropout(Sublayer(x)))`.

        With `norm_first` it is `x + Dropout(Sublayer(LayerNorm(x)))`. Besides
        its update of `x`, `(B, T, D)`, a sub-layer may have found something
        else, which is returned too.
        """
        first = self.settings["norm_first"]
        update, found = sublayer(norm(x) if first else x)
        sums = x + dropout(update, training=training)
        return sums if first else norm(sums), found

    def feed(self, x: Tensor) -> tuple[Tensor, None]:
        """Run the feed-forward network as the sub-layer of `residual`."""
        return self.feed_forward(x), None

    def attention_layer(
        self, name: str, d_model: Any, restriction: int | None = None
    ) -> MultiHeadAttention:
        num_heads = self.settings["num_heads"]
        key_dim, value_dim = (
            self.settings[width] or head_width(width, d_model, num_heads)
            for width in ("key_dim", "value_dim")
        )
        return MultiHeadAttention(
            num_heads,
            key_dim,
            value_dim,
            restriction,
            use_bias=self.settings["attention_bias"],
            dropout=self.settings["attention_dropout"],
            dtype=self.dtype_policy,
            name=name,
        )

    def feed_forward_layer(self) -> FeedForward:
        return FeedForward(
            self.settings["ffn_dim"],
            self.settings["activation"],
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def dropout_layer(self, name: str) -> Dropout:
        rate = self.settings["dropout"]
        return Dropout(rate, dtype=self.dtype_policy, name=name)

    def norm_layer(self, name: str) -> LayerNormalization:
        epsilon = self.settings["norm_epsilon"]
        return LayerNormalization(epsilon, dtype=self.dtype_policy, name=name)

    def compute_output_shape(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    # By a trace of `call`, which alone knows the shapes of all it returns.
    compute_output_spec = keras.Operation.compute_output_spec

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def build_stack(stack: Block, kind: Callable[..., Block], *shapes: Any) -> None:
    """Make and build the layers; of pre-norm layers a last norm, too."""
    settings = dict(stack.settings)
    count = settings.pop("num_layers")
    stack.layers = [
        kind(**settings, dtype=stack.dtype_policy, name=f"layer_{i}")
        for i in range(count)
    ]
    for layer in stack.layers:
        layer.build(*shapes)
    if stack.settings["norm_first"]:
        stack.norm = stack.norm_layer("norm")
        stack.norm.build(shapes[0])


def run_stack(stack, x, *memory, return_attention_scores, **settings):
    """Call every layer; with scores, return a list of each kind of them."""
    if return_attention_scores:  # A layer of one's own may not know it.
        settings["return_attention_scores"] = True
    scores = []
    for layer in stack.layers:
        x = layer(x, *memory, **settings)
        if return_attention_scores:
            x, *of_layer = x
            scores.append(of_layer)
    x = ended(stack, x)
    if not return_attention_scores:
        return x
    return x, *map(list, zip(*scores, strict=True))


def ended(stack: Block, x: Tensor) -> Tensor:
    """Apply the final norm of a pre-norm stack."""
    return stack.norm(x) if stack.settings["norm_first"] else x
