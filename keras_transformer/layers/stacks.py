"""The stacks of encoder and decoder (section 3.1).

Axes: B batch, S source length, T target length, D model width, H heads, K key
width, W beams.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.config import checked
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.block import (
    LAYER_SETTINGS,
    Block,
    Cache,
    DecoderLayer,
    EncoderLayer,
)
from keras_transformer.layers.layer import sequence_of


class Stack(Block):
    """Layers one after the other; after pre-norm layers a last norm, too."""

    def __init__(
        self,
        num_layers: int = 6,
        num_heads: int = 8,
        key_dim: int | None = None,
        value_dim: int | None = None,
        ffn_dim: int = 2048,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        restriction: int | None = None,
        activation: str | Callable[..., Any] = "relu",
        norm_epsilon: float = 1e-6,
        attention_bias: bool = False,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        of_layers = {name: given[name] for name in LAYER_SETTINGS}
        super().__init__(**of_layers, **kwargs)
        self.settings["num_layers"] = checked("num_layers", num_layers)

    def build_layers(
        self, kind: type[Block], inputs_shape: Shape, *memory_shape: Any
    ) -> None:
        self.input_spec = sequence_of(inputs_shape[-1])
        settings = {name: self.settings[name] for name in LAYER_SETTINGS}
        settings["dtype"] = self.dtype_policy
        self.layers = [
            kind(**settings, name=f"layer_{i}")
            for i in range(self.settings["num_layers"])
        ]
        for layer in self.layers:
            layer.build(inputs_shape, *memory_shape)
        if self.settings["norm_first"]:
            self.norm = self.make_norm("norm", inputs_shape)

    def run(self, x, *memory, return_attention_scores=False, **how):
        """Call every layer; with scores, return a list of each kind too."""
        if return_attention_scores:  # A layer of one's own may not know it.
            how["return_attention_scores"] = True
        scores = []
        for layer in self.layers:
            x = layer(x, *memory, **how)
            if return_attention_scores:
                x, *of_layer = x
                scores.append(of_layer)
        x = self.ended(x)
        if not return_attention_scores:
            return x
        return x, *map(list, zip(*scores, strict=True))

    def ended(self, x: Tensor) -> Tensor:
        """Apply the last norm of a pre-norm stack."""
        return self.norm(x) if self.settings["norm_first"] else x


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """A stack of encoder layers.

    Pre-norm stacks need a final layer norm, so `norm_first` adds one.

    Args:
        num_layers: Layers of the stack, N.
        num_heads: As for `EncoderLayer`; so are `key_dim`, `value_dim`,
            `ffn_dim`, `dropout`, `attention_dropout`, `restriction`,
            `activation`, `norm_epsilon`, `attention_bias` and `norm_first`.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, S, D)`, embedded and positioned. It and all
            others are as in `EncoderLayer`.

    Returns:
        The memory z, a float tensor `(B, S, D)`. With
        `return_attention_scores` a pair of it and the list of each layer's
        weights `(B, H, S, S)`.
    """

    def build(self, inputs_shape: Shape) -> None:
        self.build_layers(EncoderLayer, inputs_shape)

    def call(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        training: bool = False,
        mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        return self.run(
            inputs,
            attention_mask=attention_mask,
            training=training,
            mask=mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """A stack of decoder layers.

    Pre-norm stacks need a final layer norm, so `norm_first` adds one.

    Args:
        num_layers: Layers of the stack, N.
        num_heads: As for `EncoderLayer`; so are `key_dim`, `value_dim`,
            `ffn_dim`, `dropout`, `attention_dropout`, `restriction`,
            `activation`, `norm_epsilon`, `attention_bias` and `norm_first`.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, T, D)`, embedded and positioned. It and all
            others are as in `DecoderLayer`.

    Returns:
        Float tensor `(B, T, D)`. With `return_attention_scores` that tensor,
        and two lists of each layer's weights: of self-attention
        `(B, H, T, T)` and of cross-attention `(B, H, T, S)`.
    """

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        self.build_layers(DecoderLayer, inputs_shape, memory_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool = False,
        inputs_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
    ) -> Any:
        return self.run(
            inputs,
            memory,
            self_mask=self_mask,
            memory_mask=memory_mask,
            training=training,
            inputs_mask=inputs_mask,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )

    def step(
        self,
        inputs: Tensor,
        caches: list[Cache],
        crosses: list[Cache],
        self_mask: Tensor,
        memory_mask: Tensor,
        write: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, list[Cache]]:
        """Run `DecoderLayer.step` in every layer; lists have an item each."""
        new_caches = []
        for layer, cache, cross in zip(
            self.layers, caches, crosses, strict=True
        ):
            inputs, cache = layer.step(
                inputs, cache, cross, self_mask, memory_mask, write
            )
            new_caches.append(cache)
        return self.ended(inputs), new_caches
