"""What the layers of encoder and decoder have in common (section 3.1).

Axes: B batch, T length, D model width.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformer.config import head_width
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.attention import SEQUENCE, MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.replicas import Dropout
from keras_transformer.settings import take


class Block(keras.layers.Layer):
    """A layer, or a stack of them, with settings of `ModelConfig`.

    It takes them out of the keywords `given`, the rest of which Keras gets.
    """

    def __init__(
        self, fields: Sequence[dataclasses.Field], given: dict[str, Any]
    ) -> None:
        settings = take(fields, given)
        super().__init__(**given)
        self.settings = settings
        self.supports_masking = True
        self.input_spec = SEQUENCE

    def residual(
        self,
        x: Tensor,
        sublayer: Callable[[Tensor], tuple[Tensor, Any]],
        dropout: Dropout,
        norm: LayerNormalization,
        training: bool = False,
    ) -> tuple[Tensor, Any]:
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

    def compute_output_spec(
        self, inputs: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if not kwargs.get("return_attention_scores"):
            return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        # By a trace of `call`, which alone knows the shapes of all scores.
        return keras.Operation.compute_output_spec(
            self, inputs, *args, **kwargs
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def build_stack(stack: Block, kind: Callable[..., Block], *shapes: Any) -> None:
    """Make and build the layers; of pre-norm layers a last norm, too."""
    stack.layers = [
        kind(**stack.settings, dtype=stack.dtype_policy, name=f"layer_{i}")
        for i in range(stack.num_layers)
    ]
    for layer in stack.layers:
        layer.build(*shapes)
    if stack.settings["norm_first"]:
        stack.norm = stack.norm_layer("norm")
        stack.norm.build(shapes[0])


def run_stack(
    stack: Block,
    x: Tensor,
    *memory: Tensor,
    return_attention_scores: bool,
    **settings: Any,
) -> Any:
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
