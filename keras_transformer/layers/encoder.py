"""The encoder: layers of self-attention and feed-forward (section 3.1).

Axes: B batch, S source length, D model width, H heads.
"""

from typing import Any

import keras

from keras_transformer.config import LAYER_SETTINGS, STACK_SETTINGS
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.block import Block, build_stack, run_stack
from keras_transformer.masks import all_of, mask_of_heads, mask_of_keys
from keras_transformer.settings import with_settings


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(LAYER_SETTINGS)
class EncoderLayer(Block):
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
        return_attention_scores: Whether to return the weights too.

    Returns:
        Float tensor `(B, S, D)` in the layer's compute dtype. With
        `return_attention_scores`, as in Keras, a pair of that tensor and the
        attention weights `(B, H, S, S)`.

    Raises:
        SettingError: If a setting makes no sense; it is a `ValueError`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(LAYER_SETTINGS, settings)

    def build(self, input_shape: Shape) -> None:
        self.attention = self.attention_layer(
            "attention", input_shape[-1], self.settings["restriction"]
        )
        self.feed_forward = self.feed_forward_layer()
        # The weights of optimizers are saved in this order.
        self.attention_dropout = self.dropout_layer("attention_dropout")
        self.attention_norm = self.norm_layer("attention_norm")
        self.feed_forward_dropout = self.dropout_layer("feed_forward_dropout")
        self.feed_forward_norm = self.norm_layer("feed_forward_norm")
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
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        mask = implicit_mask(inputs) if mask is None else mask
        seen = all_of(mask_of_heads(attention_mask), mask_of_keys(mask))

        def attend(x):
            return self.attention.attend_sequence(
                *(x, x, x, (seen,), use_causal_mask, training),
                return_attention_scores,
            )

        x, scores = self.residual(
            *(inputs, attend, self.attention_dropout, self.attention_norm),
            training,
        )
        x, _ = self.residual(
            *(x, self.feed, self.feed_forward_dropout, self.feed_forward_norm),
            training,
        )
        return (x, scores) if return_attention_scores else x


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(STACK_SETTINGS)
class Encoder(Block):
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
        return_attention_scores: Whether to return the weights too.

    Returns:
        The memory z, a float tensor `(B, S, D)`. With
        `return_attention_scores` a pair of it and the list of each layer's
        weights `(B, H, S, S)`.

    Raises:
        SettingError: If a setting makes no sense; it is a `ValueError`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(STACK_SETTINGS, settings)
        self.num_layers = self.settings.pop("num_layers")

    def build(self, input_shape: Shape) -> None:
        build_stack(self, EncoderLayer, input_shape)

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        return run_stack(
            self,
            inputs,
            attention_mask=attention_mask,
            training=training,
            mask=mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_layers": self.num_layers}
