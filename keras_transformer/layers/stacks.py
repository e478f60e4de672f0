"""The stacks of encoder and decoder, and their layers (section 3.1).

A layer is a few sub-layers, each with dropout, a residual connection and layer
normalisation around it. Besides the call on whole targets, the decoder's `step`
runs one position with cached keys and values; both must give the same numbers.

Axes: B batch, S source length, T target length, D model width, H heads, K key
width, U value width, W beams, t slots written so far.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import keras

from keras_transformer.config import LAYER_SETTINGS, STACK_SETTINGS
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.block import (
    Block,
    build_stack,
    ended,
    run_stack,
)
from keras_transformer.layers.products import swap_heads_as_integers
from keras_transformer.masks import all_of, mask_of_heads, mask_of_keys
from keras_transformer.settings import with_settings

# Keys `(B, H, ., K)` and values `(B, H, ., U)`.
Cache: TypeAlias = tuple[Tensor, Tensor]


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

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(LAYER_SETTINGS, settings)

    def build(self, inputs_shape: Shape) -> None:
        self.attention = self.attention_layer(
            "attention", inputs_shape[-1], self.settings["restriction"]
        )
        self.feed_forward = self.feed_forward_layer()
        # The weights of optimizers are saved in this order.
        self.attention_dropout = self.dropout_layer("attention_dropout")
        self.attention_norm = self.norm_layer("attention_norm")
        self.feed_forward_dropout = self.dropout_layer("feed_forward_dropout")
        self.feed_forward_norm = self.norm_layer("feed_forward_norm")
        for layer in (self.attention, self.feed_forward):
            layer.build(inputs_shape)
        for norm in (self.attention_norm, self.feed_forward_norm):
            norm.build(inputs_shape)

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

        how = (seen,), use_causal_mask, training, return_attention_scores
        x, scores = self.residual(
            inputs,
            lambda x: self.attention.attend_sequence(x, x, x, *how),
            *(self.attention_dropout, self.attention_norm, training),
        )
        x, _ = self.residual(
            *(x, self.feed, self.feed_forward_dropout, self.feed_forward_norm),
            training,
        )
        return (x, scores) if return_attention_scores else x


class OfSublayers(NamedTuple):
    """One thing for each sub-layer, in the order that saved files know."""

    self_attention: Any
    cross_attention: Any
    feed_forward: Any


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(LAYER_SETTINGS)
class DecoderLayer(Block):
    """Self-attention, attention to the memory, feed-forward, each post-normed.

    Args:
        **settings: Fields of `ModelConfig` that apply to a layer.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, T, D)`.
        memory: Float tensor `(B, S, D)`, the encoder's output.
        self_mask: Boolean tensor `(B, T, T)`, or broadcastable to
            `(B, H, T, T)`; `True` = may attend.
        memory_mask: Boolean tensor `(B, S)`, `(B, T, S)` or `(B, H, T, S)`,
            broadcastable. The mask that Keras attached to the memory also
            counts.
        training: Whether dropout is on.
        inputs_mask: Boolean tensor `(B, T)`, `True` = may be attended to; by
            default the mask that Keras attached to the inputs. The output
            carries it.
        use_causal_mask: Whether position i sees no position beyond i. By
            default `self_mask` decides that. With a restriction it costs less
            than a `self_mask` `(B, T, T)`.
        return_attention_scores: Whether to return all weights too.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype. With
        `return_attention_scores` that tensor, the weights of self-attention
        `(B, H, T, T)` and those of cross-attention `(B, H, T, S)`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(LAYER_SETTINGS, settings)

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        d_model = inputs_shape[-1]
        self.self_attention = self.attention_layer(
            "self_attention", d_model, self.settings["restriction"]
        )
        self.cross_attention = self.attention_layer("cross_attention", d_model)
        self.feed_forward = self.feed_forward_layer()
        self.self_attention.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape or inputs_shape)
        self.feed_forward.build(inputs_shape)
        names = OfSublayers._fields
        self.dropouts = OfSublayers(
            *(self.dropout_layer(f"{name}_dropout") for name in names)
        )
        self.norms = OfSublayers(
            *(self.norm_layer(f"{name}_norm") for name in names)
        )
        for norm in self.norms:
            norm.build(inputs_shape)

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
        if memory is None:
            raise ValueError(
                "`memory` must be the encoder's output (B, S, D); without a "
                "source, use an encoder's layer with a causal "
                "`attention_mask`. Received: None"
            )
        # Keras has passed the inputs' mask by its name.
        self_masks = (mask_of_heads(self_mask), mask_of_keys(inputs_mask))
        of_memory = implicit_mask(memory)
        if of_memory is memory_mask:  # Keras has passed this one too.
            of_memory = None
        seen = all_of(mask_of_keys(memory_mask), mask_of_keys(of_memory))

        how = self_masks, use_causal_mask, training, return_attention_scores
        cross = self.cross_attention
        found = self._run(
            inputs,
            lambda x: self.self_attention.attend_sequence(x, x, x, *how),
            lambda x: cross.attend(
                x, *cross.keys_values(memory), seen, training=training
            ),
            training,
        )
        return found if return_attention_scores else found[0]

    def _run(self, x, attend_self, attend_memory, training=False):
        """Return the output, and what else the two attentions found."""
        x, own = self._residual("self_attention", x, attend_self, training)
        x, cross = self._residual("cross_attention", x, attend_memory, training)
        x, _ = self._residual("feed_forward", x, self.feed, training)
        return x, own, cross

    def _residual(self, name, x, sublayer, training):
        dropout, norm = (
            getattr(parts, name) for parts in (self.dropouts, self.norms)
        )
        return self.residual(x, sublayer, dropout, norm, training)

    def step(
        self,
        inputs: Tensor,
        cache: Cache,
        cross: Cache,
        self_mask: Tensor,
        memory_mask: Tensor,
        write: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Cache]:
        """Decode one position of every beam, all beams of a sentence together.

        Args:
            inputs: Float tensor `(B, W, D)`.
            cache: Keys `(B, H, t, K)` and values `(B, H, t, U)` of the
                sentence's slots so far, or of the slots within the restriction.
            cross: Keys `(B, H, S, K)` and values `(B, H, S, U)` of the memory.
            self_mask: Boolean tensor `(B, 1, W, t')`, each beam's slots among
                those after writing.
            memory_mask: Boolean tensor `(B, 1, 1, S)`.
            write: Called as `write(slots, new)` for keys `(B, H, W, K)` and
                values `(B, H, W, U)`; returns all slots.

        Returns:
            The output `(B, W, D)` and the cache with this position written.
        """
        swap = swap_heads_as_integers

        def attend_self(x):
            new = self.self_attention.keys_values(x, swap=swap)
            slots = tuple(map(write, cache, new))
            update, _ = self.self_attention.attend(x, *slots, self_mask, swap)
            return update, slots

        x, slots, _ = self._run(
            inputs,
            attend_self,
            # The beams of a sentence are queries to the same memory.
            lambda x: self.cross_attention.attend(x, *cross, memory_mask, swap),
        )
        return x, slots


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
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(STACK_SETTINGS, settings)

    def build(self, inputs_shape: Shape) -> None:
        build_stack(self, EncoderLayer, inputs_shape)

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


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(STACK_SETTINGS)
class Decoder(Block):
    """A stack of decoder layers.

    Pre-norm stacks need a final layer norm, so `norm_first` adds one.

    Args:
        **settings: Fields of `ModelConfig` that apply to a layer.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, T, D)`, embedded and positioned.
        memory: Float tensor `(B, S, D)`.
        self_mask: As in `DecoderLayer`, like all the following.
        memory_mask: Boolean tensor `(B, S)`, `(B, T, S)` or `(B, H, T, S)`.
        training: Whether dropout is on.
        inputs_mask: Boolean tensor `(B, T)`.
        use_causal_mask: Whether position i sees no position beyond i.
        return_attention_scores: Whether to return all weights too.

    Returns:
        Float tensor `(B, T, D)`. With `return_attention_scores` that tensor,
        and two lists of each layer's weights: of self-attention
        `(B, H, T, T)` and of cross-attention `(B, H, T, S)`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(STACK_SETTINGS, settings)

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        build_stack(self, DecoderLayer, inputs_shape, memory_shape)

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
        return run_stack(
            self,
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
        return ended(self, inputs), new_caches
