"""The encoder: layers of self-attention and feed-forward (section 3.1).

Axes: B batch, S source length, D model width.
"""

from typing import Any

import keras

from keras_transformer.config import LAYER_SETTINGS, STACK_SETTINGS, head_width
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.attention import SEQUENCE, MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.masks import all_of, mask_of_heads, mask_of_keys
from keras_transformer.replicas import Dropout
from keras_transformer.settings import take, with_settings


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(LAYER_SETTINGS)
class EncoderLayer(keras.layers.Layer):
    """Self-attention, then a feed-forward network, each post-normed.

    Every sub-layer is `LayerNorm(x + Dropout(Sublayer(x)))`, or with
    `norm_first` `x + Dropout(Sublayer(LayerNorm(x)))`.

    Args:
        **settings: Fields of `ModelConfig` that apply to a layer.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, S, D)`.
        attention_mask: Boolean tensor `(B, S, S)`, or broadcastable to
            `(B, H, S, S)`; `True` = may attend.
        training: Whether dropout is on.
        mask: Boolean tensor `(B, S)`, `True` = may be attended to; by default
            the mask that Keras attached to the inputs. The output carries it.
        use_causal_mask: Whether position i sees no position beyond i, as in a
            model that has no encoder, only a decoder.

    Returns:
        Float tensor `(B, S, D)` in the layer's compute dtype.

    Raises:
        SettingError: If a setting makes no sense; it is a `ValueError`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(self, **settings: Any) -> None:
        own = take(LAYER_SETTINGS, settings)
        super().__init__(**settings)
        self.settings = own
        self.supports_masking = True
        self.input_spec = SEQUENCE

    def build(self, input_shape: Shape) -> None:
        self.attention = attention_layer(
            self, "attention", input_shape[-1], self.settings["restriction"]
        )
        self.feed_forward = feed_forward_layer(self)
        self.attention_dropout, self.attention_norm = residual_parts(
            self, "attention"
        )
        self.feed_forward_dropout, self.feed_forward_norm = residual_parts(
            self, "feed_forward"
        )
        for layer in (
            self.attention,
            self.feed_forward,
            self.attention_norm,
            self.feed_forward_norm,
        ):
            layer.build(input_shape)

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor:
        mask = implicit_mask(inputs) if mask is None else mask
        attention_mask = all_of(
            mask_of_heads(attention_mask), mask_of_keys(mask)
        )
        return self._run(inputs, attention_mask, training, use_causal_mask)[0]

    def call_with_weights(
        self, inputs: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Call without Keras's masks; return weights `(B, H, S, S)` too."""
        output, weights = self._run(inputs, attention_mask)
        return output, self.attention.weights_of_sequence(weights, inputs)

    def _run(self, inputs, attention_mask, training=False, causal=False):
        """Return the output, and the weights as `attend_sequence` does."""
        x = norm_before(self, self.attention_norm, inputs)
        update, weights = self.attention.attend_sequence(
            *(x, *self.attention.keys_values(x), (attention_mask,)),
            causal=causal,
            training=training,
        )
        update = self.attention_dropout(update, training=training)
        sums = norm_after(self, self.attention_norm, inputs + update)
        x = norm_before(self, self.feed_forward_norm, sums)
        update = self.feed_forward_dropout(
            self.feed_forward(x), training=training
        )
        sums = norm_after(self, self.feed_forward_norm, sums + update)
        return sums, weights

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(STACK_SETTINGS)
class Encoder(keras.layers.Layer):
    """A stack of encoder layers.

    Pre-norm stacks need a final layer norm, so `norm_first` adds one.

    Args:
        **settings: Fields of `ModelConfig` that apply to a layer.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, S, D)`, embedded and positioned.
        attention_mask: As in `EncoderLayer`, like all the following.
        training: Whether dropout is on.
        mask: Boolean tensor `(B, S)`.
        use_causal_mask: Whether position i sees no position beyond i.

    Returns:
        The memory z, a float tensor `(B, S, D)`.

    Raises:
        SettingError: If a setting makes no sense; it is a `ValueError`.
    """

    def __init__(self, **settings: Any) -> None:
        own = take(STACK_SETTINGS, settings)
        super().__init__(**settings)
        self.num_layers = own.pop("num_layers")
        self.settings = own
        self.supports_masking = True
        self.input_spec = SEQUENCE

    def build(self, input_shape: Shape) -> None:
        self.layers = [
            EncoderLayer(
                **self.settings, dtype=self.dtype_policy, name=f"layer_{i}"
            )
            for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(input_shape)
        if self.settings["norm_first"]:
            self.norm = norm_layer(self, "norm")
            self.norm.build(input_shape)

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            inputs = layer(
                inputs,
                attention_mask=attention_mask,
                training=training,
                mask=mask,
                use_causal_mask=use_causal_mask,
            )
        return self._ended(inputs)

    def call_with_weights(
        self, inputs: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the memory and each layer's weights `(B, H, S, S)`."""
        weights = []
        for layer in self.layers:
            inputs, of_layer = layer.call_with_weights(inputs, attention_mask)
            weights.append(of_layer)
        return self._ended(inputs), weights

    def _ended(self, x):
        """Apply the final norm of a pre-norm stack."""
        return self.norm(x) if self.settings["norm_first"] else x

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **self.settings,
        }


def attention_layer(
    owner: keras.layers.Layer,
    name: str,
    d_model: Any,
    restriction: int | None = None,
) -> MultiHeadAttention:
    """Make a `MultiHeadAttention` with the sizes and dtype of `owner`."""
    num_heads = owner.settings["num_heads"]
    key_dim, value_dim = (
        owner.settings[width] or head_width(width, d_model, num_heads)
        for width in ("key_dim", "value_dim")
    )
    return MultiHeadAttention(
        num_heads,
        key_dim,
        value_dim,
        restriction,
        use_bias=owner.settings["attention_bias"],
        dropout=owner.settings["attention_dropout"],
        dtype=owner.dtype_policy,
        name=name,
    )


def feed_forward_layer(owner: keras.layers.Layer) -> FeedForward:
    """Make a `FeedForward` with width, activation and dtype of `owner`."""
    return FeedForward(
        owner.settings["ffn_dim"],
        owner.settings["activation"],
        dtype=owner.dtype_policy,
        name="feed_forward",
    )


def residual_parts(
    owner: keras.layers.Layer, name: str
) -> tuple[Dropout, LayerNormalization]:
    """Make the dropout and the norm of a sub-layer."""
    dropout = Dropout(
        owner.settings["dropout"],
        dtype=owner.dtype_policy,
        name=f"{name}_dropout",
    )
    return dropout, norm_layer(owner, f"{name}_norm")


def norm_layer(owner: keras.layers.Layer, name: str) -> LayerNormalization:
    """Make a `LayerNormalization` with epsilon and dtype of `owner`."""
    return LayerNormalization(
        epsilon=owner.settings["norm_epsilon"],
        dtype=owner.dtype_policy,
        name=name,
    )


def norm_before(
    owner: keras.layers.Layer, norm: LayerNormalization, x: Tensor
) -> Tensor:
    """Norm `x`, the input of a sub-layer, if norms come first."""
    return norm(x) if owner.settings["norm_first"] else x


def norm_after(
    owner: keras.layers.Layer, norm: LayerNormalization, x: Tensor
) -> Tensor:
    """Norm `x`, the output of a sub-layer, unless norms come first."""
    return x if owner.settings["norm_first"] else norm(x)
