"""Scaled dot-product attention (section 3.2.1), and products with weights.

A search whose weights no longer change can replace the products with weights by
faster ones inside a `replaced_by` block.

Axes: B batch, H heads, T query length, S key length, K key width, U value
width; N rows, D width, E columns, V vocabulary, K words of it. The functions of
attention also take further leading axes before H: the decoding step has one for
the beams.
"""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from keras_transformer.keras_internals import Tensor

# Finite, so that a query with no key to see gets an even spread, not NaN.
MASKED_SCORE = -1e38


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Weigh every value by how well its key matches the query (equation 1).

    The softmax runs in float32 under every half-precision policy: a sum of
    many float16 exponentials loses the small ones.

    Args:
        query: Float tensor `(B, H, T, K)`.
        key: Float tensor `(B, H, S, K)`.
        value: Float tensor `(B, H, S, U)`.
        mask: Boolean tensor broadcastable to `(B, H, T, S)`. `True` lets the
            query see the key.
        dropout: Drops weights before they weigh the values; none is dropped if
            not given.

    Returns:
        The context `(B, H, T, U)` and the weights `(B, H, T, S)`, both in the
        dtype of `value`. Each row of weights sums to 1; `dropout` does not
        show in them.
    """
    # Scale T × K numbers, not T × S.
    query = query * (1.0 / math.sqrt(query.shape[-1]))
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, at_least_float32(scores.dtype))
    if mask is not None:
        # Adding broadcasts faster than selecting, and its gradient is the
        # identity. In float32 nothing of the score is left in the sum.
        hidden = ops.where(mask, 0.0, MASKED_SCORE)
        scores = scores + ops.cast(hidden, scores.dtype)
    weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    kept = weights if dropout is None else dropout(weights)
    return ops.matmul(kept, value), weights


def at_least_float32(dtype: Any) -> str:
    """Return the dtype for sums and exponentials of numbers of a dtype."""
    dtype = keras.backend.standardize_dtype(dtype)
    return keras.backend.result_type(dtype, "float32")


def swap_heads(inputs: Tensor) -> Tensor:
    """Exchange H and T: `(B, T, H, K)` to `(B, H, T, K)`, and back."""
    return ops.swapaxes(inputs, -3, -2)


def swap_heads_as_integers(inputs: Tensor) -> Tensor:
    """Swap as `swap_heads` does, where no gradient is needed.

    TensorFlow leaves floats to oneDNN, which is slow for the few numbers of a
    decoding step, but transposes integers of the same width itself.
    """
    size = keras.backend.standardize_dtype(inputs.dtype)[-2:]
    return ops.view(swap_heads(ops.view(inputs, f"int{size}")), inputs.dtype)


def leading_axes(inputs: Tensor) -> tuple | Tensor:
    """Return all axes but the last, for `ops.reshape`.

    A single unknown size is -1, so no operation need compute it.
    """
    sizes = inputs.shape[:-1]
    if sum(size is None for size in sizes) > 1:
        return ops.shape(inputs)[:-1]
    return tuple(-1 if size is None else size for size in sizes)


class Products:
    """Products with weights by `keras.ops`; subclasses make some otherwise."""

    def product(
        self,
        rows: Tensor,
        kernel: keras.Variable,
        bias: keras.Variable | None = None,
        activation: str | Callable | None = None,
    ) -> Tensor:
        """Compute `activation(rows @ kernel + bias)` in the dtype of the rows.

        Rows are `(N, D)`, the kernel is `(D, E)`, and the result `(N, E)`.
        """
        result = ops.matmul(rows, ops.cast(kernel, rows.dtype))
        if bias is not None:
            # `ops.add` makes a `BiasAdd`, which TensorFlow fuses with the
            # product.
            result = ops.add(result, ops.cast(bias, rows.dtype))
        return keras.activations.get(activation)(result)

    def table_product(
        self, table: keras.Variable, dtype: str, words: Tensor | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Make the function `rows @ transpose(table)`, for many calls.

        It turns `(N, D)` into `(N, V)`, or, with `words` `(K,)`, the only rows
        of the embedding matrix to multiply by, into `(N, K)`.
        """
        rows_in_use = table if words is None else ops.take(table, words, axis=0)
        # Transposed here, once, which makes every call faster.
        kernel = ops.transpose(ops.cast(rows_in_use, dtype))
        return lambda rows: ops.matmul(rows, kernel)

    def lookup(self, table: keras.Variable, ids: Tensor) -> Tensor:
        """Pick the rows `(..., D)` of an embedding matrix `(V, D)`."""
        return ops.take(table, ids, axis=0)


_PLAIN = Products()
_in_use: contextvars.ContextVar[Products] = contextvars.ContextVar(
    "products", default=_PLAIN
)
# Returns what makes all products with weights here.
products_in_use = _in_use.get


@contextlib.contextmanager
def replaced_by(products: Products | None) -> Iterator[None]:
    """Let `products`, if any, make all products with weights in this block."""
    token = _in_use.set(products or _in_use.get())
    try:
        yield
    finally:
        _in_use.reset(token)
