"""The decoder: masked self-attention, attention to the source, feed-forward.

Section 3.1. Besides the call on whole targets, `step` runs one position with
cached keys and values; both must give the same numbers.

Axes: B batch, T target length, S source length, D model width, H heads,
K key width, U value width, W beams, t slots written so far.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras

from keras_transformer.config import LAYER_SETTINGS, STACK_SETTINGS
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.attention import SEQUENCE
from keras_transformer.layers.dot_product import swap_heads_as_integers
from keras_transformer.layers.encoder import (
    attention_layer,
    feed_forward_layer,
    norm_after,
    norm_before,
    norm_layer,
    residual_parts,
)
from keras_transformer.masks import (
    all_of,
    mask_of_heads,
    mask_of_keys,
    mask_of_memory,
)
from keras_transformer.settings import take, with_settings

# Keys `(B, H, ., K)` and values `(B, H, ., U)`.
Cache: TypeAlias = tuple[Tensor, Tensor]


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(LAYER_SETTINGS)
class DecoderLayer(keras.layers.Layer):
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

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype.

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

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        d_model = inputs_shape[-1]
        self.self_attention = attention_layer(
            self, "self_attention", d_model, self.settings["restriction"]
        )
        self.cross_attention = attention_layer(self, "cross_attention", d_model)
        self.feed_forward = feed_forward_layer(self)
        self.self_attention.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape or inputs_shape)
        self.feed_forward.build(inputs_shape)
        names = ("self_attention", "cross_attention", "feed_forward")
        parts = [residual_parts(self, name) for name in names]
        self.dropouts, self.norms = zip(*parts, strict=True)
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
    ) -> Tensor:
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
        memory_mask = all_of(
            mask_of_memory(memory_mask), mask_of_keys(of_memory)
        )
        return self._run(
            inputs, memory, self_masks, memory_mask, training, use_causal_mask
        )[0]

    def call_with_weights(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Call the layer without Keras's masks; return all weights too.

        Masks are of rank 4, `(B, H, T, T)` and `(B, H, T, S)`, or `None`.
        """
        x, own, cross = self._run(inputs, memory, (self_mask,), memory_mask)
        return x, self.self_attention.weights_of_sequence(own, inputs), cross

    def _run(
        self,
        inputs,
        memory,
        self_masks,
        memory_mask,
        training=False,
        causal=False,
    ):
        """Return output and weights; self-attention's as `attend_sequence`."""
        x = norm_before(self, self.norms[0], inputs)
        update, own = self.self_attention.attend_sequence(
            *(x, *self.self_attention.keys_values(x), self_masks),
            *(causal, training),
        )
        sums = self._residual(0, inputs, update, training)
        x = norm_before(self, self.norms[1], sums)
        update, cross = self.cross_attention.attend(
            *(x, *self.cross_attention.keys_values(memory), memory_mask),
            training=training,
        )
        sums = self._residual(1, sums, update, training)
        x = norm_before(self, self.norms[2], sums)
        sums = self._residual(2, sums, self.feed_forward(x), training)
        return sums, own, cross

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
        x = norm_before(self, self.norms[0], inputs)
        new = self.self_attention.keys_values(x, swap=swap_heads_as_integers)
        cache = tuple(map(write, cache, new))
        update, _ = self.self_attention.attend(
            x, *cache, self_mask, swap_heads_as_integers
        )
        sums = self._residual(0, inputs, update)
        x = norm_before(self, self.norms[1], sums)
        # The beams of a sentence are queries to the same memory.
        update, _ = self.cross_attention.attend(
            x, *cross, memory_mask, swap_heads_as_integers
        )
        sums = self._residual(1, sums, update)
        x = norm_before(self, self.norms[2], sums)
        return self._residual(2, sums, self.feed_forward(x)), cache

    def _residual(self, i, x, update, training=False):
        """Compute `LayerNorm(x + Dropout(update))` for the i-th sub-layer.

        A pre-norm layer returns the sum without the norm.
        """
        update = self.dropouts[i](update, training=training)
        return norm_after(self, self.norms[i], x + update)

    def compute_output_shape(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


@keras.saving.register_keras_serializable(package="keras_transformer")
@with_settings(STACK_SETTINGS)
class Decoder(keras.layers.Layer):
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

    Returns:
        Float tensor `(B, T, D)`.

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

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        self.layers = [
            DecoderLayer(
                **self.settings, dtype=self.dtype_policy, name=f"layer_{i}"
            )
            for i in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(inputs_shape, memory_shape)
        if self.settings["norm_first"]:
            self.norm = norm_layer(self, "norm")
            self.norm.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool = False,
        inputs_mask: Tensor | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            inputs = layer(
                inputs,
                memory,
                self_mask=self_mask,
                memory_mask=memory_mask,
                training=training,
                inputs_mask=inputs_mask,
                use_causal_mask=use_causal_mask,
            )
        return self._ended(inputs)

    def call_with_weights(
        self,
        inputs: Tensor,
        memory: Tensor,
        self_mask: Tensor | None,
        memory_mask: Tensor | None,
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output and each layer's self- and cross-attention."""
        own, cross = [], []
        for layer in self.layers:
            inputs, own_of_layer, cross_of_layer = layer.call_with_weights(
                inputs, memory, self_mask, memory_mask
            )
            own.append(own_of_layer)
            cross.append(cross_of_layer)
        return self._ended(inputs), own, cross

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
        return self._ended(inputs), new_caches

    def _ended(self, x):
        """Apply the final norm of a pre-norm stack."""
        return self.norm(x) if self.settings["norm_first"] else x

    def compute_output_shape(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> Shape:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            **self.settings,
        }
