"""Multi-head attention (section 3.2.2).

Axes: B batch, H heads, T query length, S key length, K key width, U value
width, D model width.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.config import checked
from keras_transformer.keras_internals import Shape, Tensor, implicit_mask
from keras_transformer.layers.layer import Layer, sequence_of
from keras_transformer.layers.products import (
    leading_axes,
    products_in_use,
    scaled_dot_product_attention,
    swap_heads,
)
from keras_transformer.layers.restricted import restricted_attention
from keras_transformer.masks import (
    all_of,
    causal_mask,
    mask_of_heads,
    mask_of_keys,
)
from keras_transformer.replicas import Dropout


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Layer):
    """Attention in several learned subspaces at once (section 3.2.2).

    It projects queries and keys to `key_dim` and values to `value_dim` in each
    head, attends, and projects the concatenated heads back to the width of
    the query. No projection has a bias unless you set `use_bias`.

    Queries, keys and values have separate matrices: one wide matrix is no
    faster, and its gradient is slower.

    The mask that you pass, and the masks that Keras attaches to keys and values
    (for example after an `Embedding(mask_zero=True)`), are combined as
    booleans. A query that may attend to nothing gets the plain mean of the
    values. The output carries the mask that Keras attached to the query.

    Args:
        num_heads: Heads, the paper's h. At least 1.
        key_dim: Width of a head's queries and keys, d_k. At least 1.
        value_dim: Width of a head's values, d_v; `key_dim` if not given.
        restriction: None, or r of restricted self-attention (section 4):
            position i sees position j where |i - j| < r, at a cost of r for
            each position. At least 1. It needs as many keys as queries.
        use_bias: Whether the query and output projections have a bias. A key
            bias would cancel in the softmax; a value bias is absorbed by the
            output bias.
        dropout: Share of weights dropped in training, in [0, 1).
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        query: Float tensor `(B, T, D)`.
        key: Float tensor `(B, S, D)`; by default `value`.
        value: Float tensor `(B, S, D)`; by default `key`. Like all that
            follows, only by keyword: Keras takes it before `key`.
        attention_mask: Boolean tensor `(B, T, S)`, or broadcastable to
            `(B, H, T, S)`; `True` = may attend.
        use_causal_mask: Whether position i sees no key beyond position i.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout is on.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype. With
        `return_attention_scores`, as in Keras, a pair of that tensor and the
        attention weights `(B, H, T, S)`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.
    """

    arguments = (
        *("num_heads", "key_dim", "value_dim"),
        *("restriction", "use_bias", "dropout"),
    )

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        restriction: int | None = None,
        use_bias: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        value_dim = key_dim if value_dim is None else value_dim
        self.num_heads = checked("num_heads", num_heads)
        self.key_dim = checked("key_dim", key_dim)
        self.value_dim = checked("value_dim", value_dim)
        self.restriction = checked("restriction", restriction)
        self.use_bias = use_bias
        self.dropout = checked("attention_dropout", dropout)
        self.weights_dropout = Dropout(
            self.dropout, dtype=self.dtype_policy, name="weights_dropout"
        )
        self.input_spec = sequence_of()

    def build(
        self,
        query_shape: Shape,
        key_shape: Shape | None = None,
        value_shape: Shape | None = None,
    ) -> None:
        d_model = query_shape[-1]
        self.input_spec = sequence_of(d_model)
        key_shape = key_shape or value_shape or query_shape
        value_shape = value_shape or key_shape
        keys = self.num_heads * self.key_dim
        values = self.num_heads * self.value_dim
        self.query_kernel = self._weight("query", d_model, keys)
        self.key_kernel = self._weight("key", key_shape[-1], keys)
        self.value_kernel = self._weight("value", value_shape[-1], values)
        self.output_kernel = self._weight("output", values, d_model)
        self.query_bias = self.output_bias = None
        if self.use_bias:
            self.query_bias = self._weight("query_bias", keys)
            self.output_bias = self._weight("output_bias", d_model)

    def _weight(self, name, *shape):
        begins = "glorot_uniform" if len(shape) == 2 else "zeros"
        return self.add_weight(name=name, shape=shape, initializer=begins)

    def call(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        value: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        key = value if key is None else key
        if key is None:
            why = "Pass `key` or `value`; for self-attention, the query itself."
            raise ValueError(why)
        value = key if value is None else value
        masks = [mask_of_heads(attention_mask)]
        masks += [mask_of_keys(implicit_mask(x)) for x in (key, value)]
        how = masks, use_causal_mask, training, return_attention_scores
        output, weights = self.attend_sequence(query, key, value, *how)
        return (output, weights) if return_attention_scores else output

    def keys_values(
        self,
        memory: Tensor,
        value: Tensor | None = None,
        swap: Callable[[Tensor], Tensor] = swap_heads,
    ) -> tuple[Tensor, Tensor]:
        """Project keys and values once, for any number of queries.

        Args:
            memory: Float tensor `(B, S, D)`.
            value: Another source of the values, `(B, S, D)`.
            swap: `swap_heads`, or `swap_heads_as_integers` outside training.

        Returns:
            Keys `(B, H, S, K)` and values `(B, H, S, U)`.
        """
        if isinstance(memory, keras.KerasTensor):
            raise ValueError(
                "A functional model must call the layer itself, for weights "
                f"with `return_attention_scores=True`. Received: {memory}"
            )
        value = memory if value is None else value
        return (
            self._heads(memory, self.key_kernel, self.key_dim, swap),
            self._heads(value, self.value_kernel, self.value_dim, swap),
        )

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        attention_mask: Tensor | None = None,
        swap: Callable[[Tensor], Tensor] = swap_heads,
        training: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Attend with `query` to all projected keys and values.

        It ignores the restriction: the caller has chosen the keys.

        Args:
            query: Float tensor `(B, T, D)`.
            keys: Float tensor `(B, H, S, K)`.
            values: Float tensor `(B, H, S, U)`.
            attention_mask: Boolean tensor broadcastable to `(B, H, T, S)`.
            swap: `swap_heads`, or `swap_heads_as_integers` outside training.
            training: Whether dropout is on.

        Returns:
            The output `(B, T, D)` and the weights `(B, H, T, S)`.
        """
        queries = self._queries(query, swap)
        context, weights = scaled_dot_product_attention(
            queries, keys, values, attention_mask, self._dropout(training)
        )
        return self._merged(context, query, swap), weights

    def attend_sequence(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        masks: Sequence[Tensor | None],
        causal: bool = False,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to a whole sequence at once, within any restriction.

        The masks are boolean and broadcastable to `(B, H, T, S)`, or `None`.
        A restricted layer has weights only if you ask for them.
        """
        keys, values = self.keys_values(key, value)
        if self.restriction is None:
            lengths = (ops.shape(x)[-2] for x in (query, keys))
            mask = all_of(*masks, causal_mask(*lengths) if causal else None)
            return self.attend(query, keys, values, mask, training=training)
        queries = self._queries(query, swap_heads)
        how = masks, causal, self._dropout(training), return_attention_scores
        context, weights = restricted_attention(
            queries, keys, values, self.restriction, *how
        )
        return self._merged(context, query, swap_heads), weights

    def _dropout(self, training):
        """Return the function that drops weights, or None to drop none."""
        if not (training and self.dropout):
            return None
        return functools.partial(self.weights_dropout, training=True)

    def _merged(self, context, query, swap):
        """Concatenate heads and project: `(B, H, T, U)` to `(B, T, D)`."""
        context = ops.reshape(  # (B, T, H, U) before
            swap(context), (-1, self.num_heads * self.value_dim)
        )
        output = products_in_use().product(
            context, self.output_kernel, self.output_bias
        )
        return ops.reshape(output, (*leading_axes(query), query.shape[-1]))

    def _queries(self, query, swap):
        """Project and split: `(B, T, D)` to `(B, H, T, K)`."""
        return self._heads(
            query, self.query_kernel, self.key_dim, swap, self.query_bias
        )

    def _heads(self, inputs, kernel, width, swap=swap_heads, bias=None):
        """Project and split: `(B, T, D)` to `(B, H, T, width)`."""
        if len(inputs.shape) != 3:  # Samples would attend to each other.
            raise ValueError(
                "Keys and values must have the axes (B, S, D), and queries "
                f"(B, T, D). Received: shape {tuple(inputs.shape)}"
            )
        # One large product for all positions.
        rows = ops.reshape(inputs, (-1, kernel.shape[0]))
        projected = products_in_use().product(rows, kernel, bias)
        shape = (*leading_axes(inputs), self.num_heads, width)
        return swap(ops.reshape(projected, shape))
