"""Scaled dot-product and multi-head attention (section 3.2).

Axes: B batch, H heads, T query length, S key length, K key width, U value
width, D model width. Every function takes further leading axes before H as
well: the decoding step has one for the beams.
"""

import math

import keras
from keras import ops

# Finite, so that a query with no key to see gets an even spread, not NaN.
MASKED_SCORE = -1e38


def scaled_dot_product_attention(query, key, value, mask=None):
    """Weigh every value by how well its key answers the query (equation 1).

    The softmax runs in float32 under every dtype policy: a sum of many float16
    exponentials loses the small ones.

    Args:
        query: Float tensor `(B, H, T, K)`.
        key: Float tensor `(B, H, S, K)`.
        value: Float tensor `(B, H, S, U)`.
        mask: Boolean tensor broadcastable to `(B, H, T, S)`. `True` lets the
            query see the key.

    Returns:
        The context `(B, H, T, U)` and the weights `(B, H, T, S)`, both in the
        dtype of `value`. Each row of weights sums to 1.
    """
    # T × K numbers to scale, not T × S.
    query = query * (1.0 / math.sqrt(query.shape[-1]))
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if mask is not None:
        # A sum broadcasts faster than a choice, and its gradient is the
        # identity. In float32 it swallows the score whole.
        scores = scores + ops.where(mask, 0.0, MASKED_SCORE)
    weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    return ops.matmul(weights, value), weights


def swap_heads(inputs):
    """Exchange H and T: `(B, T, H, K)` to `(B, H, T, K)`, and back."""
    return ops.swapaxes(inputs, -3, -2)


def swap_heads_as_integers(inputs):
    """As `swap_heads`, where no gradient is asked for.

    TensorFlow leaves floats to oneDNN, which took 43 µs to move 2,048 of them.
    As integers of the same bits they took 5 µs, the casts included.
    """
    size = keras.backend.standardize_dtype(inputs.dtype)[-2:]
    swapped = swap_heads(ops.view(inputs, f"int{size}"))
    return ops.view(swapped, inputs.dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attention in several learned subspaces at once (section 3.2.2).

    Projects queries and keys to `key_dim` and values to `value_dim` in each
    head, attends, and projects the concatenated heads back to the width of
    the query. No projection has a bias.

    The projections are three matrices: one wide matrix measured no faster in
    the forward pass and 25 % slower with its gradient (two cores, 1024 × 512).

    Args:
        num_heads: Heads, the paper's h. At least 1.
        key_dim: Width of a head's queries and keys, d_k. At least 1.
        value_dim: Width of a head's values, d_v; `key_dim` if not given.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        query: Float tensor `(B, T, D)`.
        key: Float tensor `(B, S, D)`, also the source of the values.
        attention_mask: Boolean tensor broadcastable to `(B, H, T, S)`, `True`
            = may attend.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype.

    Raises:
        ValueError: If a size is below 1.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = key_dim if value_dim is None else value_dim
        for name in ("num_heads", "key_dim", "value_dim"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: "
                    f"{name}={getattr(self, name)}"
                )

    def build(self, query_shape, key_shape=None):
        d_model = query_shape[-1]
        memory_dim = (key_shape or query_shape)[-1]
        keys, values = (
            self.num_heads * self.key_dim,
            self.num_heads * self.value_dim,
        )
        self.query_kernel = self._kernel("query", d_model, keys)
        self.key_kernel = self._kernel("key", memory_dim, keys)
        self.value_kernel = self._kernel("value", memory_dim, values)
        self.output_kernel = self._kernel("output", values, d_model)

    def _kernel(self, name, rows, columns):
        return self.add_weight(
            name=name, shape=(rows, columns), initializer="glorot_uniform"
        )

    def call(self, query, key, attention_mask=None):
        return self.call_with_weights(query, key, attention_mask)[0]

    def call_with_weights(self, query, key, attention_mask=None):
        """As a call, and the attention weights `(B, H, T, S)` beside it."""
        if not self.built:
            self.build(query.shape, key.shape)
        keys, values = self.keys_values(key)
        return self.attend(query, keys, values, attention_mask)

    def keys_values(self, memory):
        """Project what is attended to, once for as many queries as come.

        Args:
            memory: Float tensor `(B, S, D)`.

        Returns:
            Keys `(B, H, S, K)` and values `(B, H, S, U)`.
        """
        return (
            self._heads(memory, self.key_kernel, self.key_dim),
            self._heads(memory, self.value_kernel, self.value_dim),
        )

    def attend(self, query, keys, values, attention_mask=None, swap=swap_heads):
        """Attend with `query` to projected keys and values.

        Args:
            query: Float tensor `(B, T, D)`.
            keys: Float tensor `(B, H, S, K)`.
            values: Float tensor `(B, H, S, U)`.
            attention_mask: Boolean tensor broadcastable to `(B, H, T, S)`.
            swap: `swap_heads`, or `swap_heads_as_integers` outside training.

        Returns:
            The output `(B, T, D)` and the weights `(B, H, T, S)`.
        """
        queries = self._heads(query, self.query_kernel, self.key_dim, swap)
        context, weights = scaled_dot_product_attention(
            queries, keys, values, attention_mask
        )
        context = ops.reshape(  # (B, T, H, U) before
            swap(context), (-1, self.num_heads * self.value_dim)
        )
        kernel = ops.cast(self.output_kernel, self.compute_dtype)
        output = ops.matmul(context, kernel)
        output = ops.reshape(output, (*leading_axes(query), query.shape[-1]))
        return output, weights

    def _heads(self, inputs, kernel, width, swap=swap_heads):
        """Project and split: `(B, T, D)` to `(B, H, T, width)`."""
        projected = _project(inputs, ops.cast(kernel, self.compute_dtype))
        shape = (*leading_axes(inputs), self.num_heads, width)
        return swap(ops.reshape(projected, shape))

    def compute_output_shape(self, query_shape, key_shape=None):
        return query_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
        }


def _project(inputs, kernel):
    """One large matrix product: `(..., D)`, `(D, E)` to `(rows, E)`."""
    return ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)


def leading_axes(inputs):
    """All axes but the last, for `ops.reshape`.

    A lone unknown size is -1, which no operation has to find out.
    """
    sizes = inputs.shape[:-1]
    if sum(size is None for size in sizes) > 1:
        return ops.shape(inputs)[:-1]
    return tuple(-1 if size is None else size for size in sizes)
