"""The products with weights in all layers.

A search whose weights no longer change can replace them by faster ones inside a
`standing_in` block.

Axes: N rows, D width, E columns, V vocabulary, K words of it.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Protocol

import keras
from keras import ops

from keras_transformer.keras_internals import Tensor


class Products(Protocol):
    """Stands in for the functions below.

    Each method does what the function of the same name does, or returns None
    to fall back on that function.
    """

    def product(
        self,
        rows: Tensor,
        kernel: keras.Variable,
        bias: keras.Variable | None,
        activation: str | Callable | None,
        transposed: bool,
    ) -> Tensor | None:
        """If `transposed`, the kernel is an embedding matrix `(E, D)`."""

    def table_product(
        self, table: keras.Variable, words: Tensor | None
    ) -> Callable[[Tensor], Tensor] | None: ...

    def lookup(self, table: keras.Variable, ids: Tensor) -> Tensor | None: ...


_standing_in: contextvars.ContextVar[Products | None] = contextvars.ContextVar(
    "products", default=None
)


@contextlib.contextmanager
def standing_in(products: Products) -> Iterator[None]:
    """Let `products` make all products with weights in this block."""
    token = _standing_in.set(products)
    try:
        yield
    finally:
        _standing_in.reset(token)


def product(
    rows: Tensor,
    kernel: keras.Variable,
    bias: keras.Variable | None = None,
    activation: str | Callable | None = None,
) -> Tensor:
    """Compute `activation(rows @ kernel + bias)`.

    Args:
        rows: Float tensor `(N, D)` in the compute dtype.
        kernel: Weight `(D, E)`.
        bias: Weight `(E,)`.
        activation: Name of a Keras activation, or a function.

    Returns:
        Float tensor `(N, E)` in the dtype of `rows`.
    """
    products = _standing_in.get()
    if products is not None:
        made = products.product(rows, kernel, bias, activation, False)
        if made is not None:
            return made
    result = ops.matmul(rows, ops.cast(kernel, rows.dtype))
    if bias is not None:
        # `ops.add` makes a `BiasAdd`, which TensorFlow fuses with the product.
        result = ops.add(result, ops.cast(bias, rows.dtype))
    return keras.activations.get(activation)(result)


def table_product(
    table: keras.Variable, dtype: str, words: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """Make the function `rows @ transpose(table)`, for many calls.

    Args:
        table: Embedding matrix `(V, D)`.
        dtype: Dtype of the products.
        words: Integer tensor `(K,)`, the only rows of the matrix to multiply
            by.

    Returns:
        A function of `(N, D)`, which returns `(N, V)` or `(N, K)`.
    """
    products = _standing_in.get()
    if products is not None:
        made = products.table_product(table, words)
        if made is not None:
            return made
    rows_in_use = table if words is None else ops.take(table, words, axis=0)
    # Transposed here, once, which makes every call faster.
    kernel = ops.transpose(ops.cast(rows_in_use, dtype))

    def multiply(rows: Tensor) -> Tensor:
        if products is not None and words is None:
            made = products.product(rows, table, None, None, True)
            if made is not None:
                return made
        return ops.matmul(rows, kernel)

    return multiply


def lookup(table: keras.Variable, ids: Tensor) -> Tensor:
    """Pick the rows `(..., D)` of an embedding matrix `(V, D)`."""
    products = _standing_in.get()
    if products is not None:
        made = products.lookup(table, ids)
        if made is not None:
            return made
    return ops.take(table, ids, axis=0)
