"""One layer of encoder or decoder (section 3.1).

Every sub-layer has dropout, a residual connection and layer normalisation (Ba
et al., 2016) around it. Besides the call on whole targets, the decoder's `step`
runs one position with cached keys and values; both must give the same numbers.

Axes: B batch, S source length, T target length, D model width, H heads, K key
width, U value width, W beams, t slots written so far, N rows of all leading
axes.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_transformer.config import checked, head_width
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.layer import Layer, sequence_of
from keras_transformer.layers.products import (
    at_least_float32,
    swap_heads_as_integers,
)
from keras_transformer.masks import all_of, mask_of_heads, mask_of_keys
from keras_transformer.replicas import Dropout

# Keys `(B, H, ., K)` and values `(B, H, ., U)`.
Cache: TypeAlias = tuple[Tensor, Tensor]
# The arguments of a layer, which are settings of `ModelConfig` too.
LAYER_SETTINGS = (
    *("num_heads", "key_dim", "value_dim", "ffn_dim"),
    *("dropout", "attention_dropout", "restriction", "activation"),
    *("norm_epsilon", "attention_bias", "norm_first"),
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer over the last axis, with a gradient written by hand.

    Automatic differentiation goes back through every mean and difference, which
    is slower; only calls outside training use it. Statistics are at least
    float32.
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


class Block(Layer):
    """A layer of encoder or decoder, or a stack of them, with its settings."""

    def __init__(
        self,
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
        given = locals()  # By the names above.
        super().__init__(**kwargs)
        self.settings = {
            name: checked(name, given[name]) for name in LAYER_SETTINGS
        }
        self.input_spec = sequence_of()

    def residual(self, x, sublayer, dropout, norm, training=False):
        """Compute `LayerNorm(x + Dropout(Sublayer(x)))`.

        With `norm_first` it is `x + Dropout(Sublayer(LayerNorm(x)))`. Besides
        its update of `x`, `(B, T, D)`, a sub-layer may have found something
        else, which is returned too.
        """
        first = self.settings["norm_first"]
        update, weights = sublayer(norm(x) if first else x)
        sums = x + dropout(update, training=training)
        return sums if first else norm(sums), weights

    def feed(self, x: Tensor) -> tuple[Tensor, None]:
        """Run the feed-forward network as the sub-layer of `residual`."""
        return self.feed_forward(x), None

    def make_attention(
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

    def make_feed_forward(self) -> FeedForward:
        sizes = self.settings["ffn_dim"], self.settings["activation"]
        return FeedForward(*sizes, dtype=self.dtype_policy, name="feed_forward")

    def make_dropout(self, name: str) -> Dropout:
        rate = self.settings["dropout"]
        return Dropout(rate, dtype=self.dtype_policy, name=name)

    def make_norm(self, name: str, inputs_shape: Shape) -> LayerNormalization:
        epsilon = self.settings["norm_epsilon"]
        norm = LayerNormalization(epsilon, dtype=self.dtype_policy, name=name)
        norm.build(inputs_shape)
        return norm

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(Block):
    """Self-attention, then a feed-forward network.

    Every sub-layer is `LayerNorm(x + Dropout(Sublayer(x)))`, or with
    `norm_first` `x + Dropout(Sublayer(LayerNorm(x)))`.

    Args:
        num_heads: Attention heads, h.
        key_dim: Width of a head's queries and keys, d_k; the width of the
            inputs divided by the heads if not given.
        value_dim: Width of a head's values, d_v; likewise.
        ffn_dim: Inner width of the feed-forward network, d_ff.
        dropout: Share of units dropped from every sub-layer's output, P_drop.
        attention_dropout: Share of attention weights dropped; the paper drops
            none.
        restriction: Let a position attend only to those less than this far
            away (section 4, r); to all if not given.
        activation: That of the feed-forward network, as for `FeedForward`.
        norm_epsilon: Added by every norm to the variance; the paper names
            none.
        attention_bias: Whether the projections of queries and of the output
            have a bias, unlike the paper's.
        norm_first: Whether norms come before sub-layers (pre-norm).
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

    def build(self, inputs_shape: Shape) -> None:
        d_model = inputs_shape[-1]
        self.input_spec = sequence_of(d_model)
        self.attention = self.make_attention(
            "attention", d_model, self.settings["restriction"]
        )
        self.feed_forward = self.make_feed_forward()
        # Optimizers save their state in the order in which weights are made.
        self.attention_dropout = self.make_dropout("attention_dropout")
        self.attention_norm = self.make_norm("attention_norm", inputs_shape)
        self.feed_forward_dropout = self.make_dropout("feed_forward_dropout")
        self.feed_forward_norm = self.make_norm(
            "feed_forward_norm", inputs_shape
        )
        self.attention.build(inputs_shape)
        self.feed_forward.build(inputs_shape)

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
            self.attention_dropout,
            self.attention_norm,
            training,
        )
        dropout, norm = self.feed_forward_dropout, self.feed_forward_norm
        x, _ = self.residual(x, self.feed, dropout, norm, training)
        return (x, scores) if return_attention_scores else x


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(Block):
    """Self-attention, attention to the memory, feed-forward, each post-normed.

    Args:
        num_heads: As for `EncoderLayer`; so are `key_dim`, `value_dim`,
            `ffn_dim`, `dropout`, `attention_dropout`, `restriction`,
            `activation`, `norm_epsilon`, `attention_bias` and `norm_first`.
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
            default the mask that Keras attached to the inputs, which the
            output then carries.
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

    def build(
        self, inputs_shape: Shape, memory_shape: Shape | None = None
    ) -> None:
        d_model = inputs_shape[-1]
        self.input_spec = sequence_of(d_model)
        self.self_attention = self.make_attention(
            "self_attention", d_model, self.settings["restriction"]
        )
        self.cross_attention = self.make_attention("cross_attention", d_model)
        self.feed_forward = self.make_feed_forward()
        self.self_attention.build(inputs_shape)
        self.cross_attention.build(inputs_shape, memory_shape or inputs_shape)
        self.feed_forward.build(inputs_shape)
        # One of each for every sub-layer, in the order that saved files know.
        names = "self_attention", "cross_attention", "feed_forward"
        self.dropouts = [self.make_dropout(f"{name}_dropout") for name in names]
        self.norms = [
            self.make_norm(f"{name}_norm", inputs_shape) for name in names
        ]

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
            said = "`memory` must be the encoder's output `(B, S, D)`."
            raise ValueError(f"{said} Received: None")
        # Keras has passed the inputs' mask by its name.
        self_masks = (mask_of_heads(self_mask), mask_of_keys(inputs_mask))
        of_memory = mask_of_keys(implicit_mask(memory))
        seen = all_of(mask_of_keys(memory_mask), of_memory)
        how = self_masks, use_causal_mask, training, return_attention_scores
        cross = self.cross_attention
        results = self._run(
            inputs,
            lambda x: self.self_attention.attend_sequence(x, x, x, *how),
            lambda x: cross.attend(
                x, *cross.keys_values(memory), seen, training=training
            ),
            training,
        )
        return results if return_attention_scores else results[0]

    def _run(self, x, attend_self, attend_memory, training=False):
        """Return the output, and what else the two attentions found."""
        others = []
        for sublayer, dropout, norm in zip(
            (attend_self, attend_memory, self.feed),
            self.dropouts,
            self.norms,
            strict=True,
        ):
            x, other = self.residual(x, sublayer, dropout, norm, training)
            others.append(other)
        return x, *others[:2]

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
