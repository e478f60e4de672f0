"""Restricted self-attention: a position sees its neighbours (section 4).

Position i sees position j where |i - j| < r, and in a decoder also j <= i: the
last r positions, including itself. So with r of at least T the restriction has
no effect.

The positions are cut into blocks of r. A block can see only itself, the block
behind and the block ahead, so T r pairs of a query and a key are weighed
instead of T T.

Axes: B batch, H heads, T length, K key width, U value width, N blocks, P
positions of a block, C positions of the two or three blocks it looks at.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_transformer.keras_internals import Tensor
from keras_transformer.layers.products import scaled_dot_product_attention
from keras_transformer.masks import all_of


def restricted_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    restriction: int,
    masks: Sequence[Tensor | None] = (),
    causal: bool = False,
    dropout: Callable[[Tensor], Tensor] | None = None,
    with_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Weigh the values near every position (section 4).

    Query and key are `(B, H, T, K)`, the value is `(B, H, T, U)`. A query that
    may see nothing gets the mean of all values, as in
    `scaled_dot_product_attention`. With a mask of pairs, not of keys
    `(B, 1, 1, T)`, all T T are weighed, and so are they for the weights.

    Returns the context `(B, H, T, U)` and, if asked for, the weights
    `(B, H, T, T)`.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    if None not in (queries, keys) and queries != keys:
        said = "Restricted attention needs as many keys as queries."
        raise ValueError(f"{said} Received: {keys} and {queries}")
    given = [mask for mask in masks if mask is not None]
    of_pairs = (len(mask.shape) > 1 and mask.shape[-2] != 1 for mask in given)
    if with_weights or any(of_pairs):
        positions = ops.arange(ops.shape(query)[-2])
        behind = positions[:, None] - positions
        near = ops.abs(behind) < restriction
        seen = all_of(near, behind >= 0 if causal else None, *given)
        return scaled_dot_product_attention(query, key, value, seen, dropout)
    blocks = _Blocks(ops.shape(query)[-2], restriction, causal)
    of_keys = [_by_blocks(mask, blocks) for mask in given]
    seen = all_of(blocks.near(restriction), *of_keys)  # (., ., N, P, C)
    context, _ = scaled_dot_product_attention(
        blocks.cut(query), blocks.look(key), blocks.look(value), seen, dropout
    )
    if of_keys:  # Without them a position sees itself.
        sees_any = ops.any(seen, axis=-1, keepdims=True)
        mean = ops.mean(value, axis=-2, keepdims=True)[:, :, None]
        context = ops.where(sees_any, context, mean)
    batch, heads, _, width = ops.shape(value)
    context = ops.reshape(
        context, (batch, heads, blocks.number * blocks.size, width)
    )
    return context[:, :, : blocks.length], None


class _Blocks:
    """T positions cut into N blocks of P, the last block padded."""

    def __init__(
        self, length: int | Tensor, restriction: int, causal: bool
    ) -> None:
        # A sequence shorter than the restriction is one block without padding.
        # An empty sequence, as in an empty batch, has no block.
        if isinstance(length, int):
            size: Any = max(min(length, restriction), 1)
        else:
            size = ops.maximum(ops.minimum(length, restriction), 1)
        self.length, self.size = length, size
        self.number = (length + size - 1) // size
        self.ahead = int(not causal)  # Blocks ahead that a block looks at.

    def look(self, x: Tensor) -> Tensor:
        """Gather each block's view: `(B, H, T, K)` to `(B, H, N, C, K)`."""
        x = self.cut(x, 1, self.ahead)
        return ops.concatenate(
            [x[:, :, i : i + self.number] for i in range(2 + self.ahead)],
            axis=3,
        )

    def cut(self, x: Tensor, behind: int = 0, ahead: int = 0) -> Tensor:
        """Cut, with zeros around, to `(B, H, behind + N + ahead, P, K)`."""
        batch, heads, _, width = ops.shape(x)
        missing = self.number * self.size - self.length
        added = (behind * self.size, missing + ahead * self.size)
        x = ops.pad(x, ((0, 0), (0, 0), added, (0, 0)))
        count = behind + self.number + ahead
        return ops.reshape(x, (batch, heads, count, self.size, width))

    def near(self, restriction: int) -> Tensor:
        """Mark the keys that exist and are near enough: bool `(N, P, C)`."""
        first = (ops.arange(self.number) * self.size)[:, None, None]
        queries = first + ops.arange(self.size)[:, None]
        keys = first - self.size + ops.arange((2 + self.ahead) * self.size)
        last = queries + (restriction - 1) * self.ahead
        exists = all_of(keys >= 0, keys < self.length)
        return all_of(exists, keys > queries - restriction, keys <= last)


def _by_blocks(mask: Tensor, blocks: _Blocks) -> Tensor:
    """Cut a mask of keys, `(B, H, 1, T)` or less, to `(B, H, N, 1, C)`."""
    while len(mask.shape) < 4:
        mask = mask[None]
    if mask.shape[-1] == 1:  # The same for all keys.
        return mask[..., None]
    return ops.swapaxes(blocks.look(ops.swapaxes(mask, -1, -2)), -1, -2)
