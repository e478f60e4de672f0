"""Masks of the positions that attention may see (section 3.2.3).

A mask is boolean and `True` means "may attend". The model makes its masks once,
from ids; layers also take the masks that users of Keras pass. Masks are
combined as booleans and become a score only inside the attention, so two masks
never add up to minus infinity.

Axes are inserted by `expand_dims`, which every runtime has; LiteRT lacks what
`mask[:, None]` becomes.

Axes: B batch, H heads, T query length, S key length.
"""

import functools

from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.keras_internals import Tensor


def padding_mask(ids: Tensor) -> Tensor:
    """Let every query see the keys that are not padding.

    Args:
        ids: Integer tensor `(B, S)`; padding is id 0, and any id below.

    Returns:
        Boolean tensor `(B, 1, 1, S)`.
    """
    return mask_of_keys(ops.greater(ids, PAD_ID))


def causal_mask(
    length: int | Tensor, keys: int | Tensor | None = None
) -> Tensor:
    """Let position i see the positions up to i.

    Args:
        length: Target length T, an integer or a scalar tensor.
        keys: Length S of the keys, if it differs.

    Returns:
        Boolean tensor `(1, 1, T, S)`.
    """
    rows = ops.arange(length)
    columns = rows if keys is None else ops.arange(keys)
    seen = ops.expand_dims(rows, 1) >= ops.expand_dims(columns, 0)
    return ops.expand_dims(seen, (0, 1))


def target_mask(target_in: Tensor) -> Tensor:
    """Combine the padding and the causal mask of a decoder's input.

    Args:
        target_in: Integer tensor `(B, T)`.

    Returns:
        Boolean tensor `(B, 1, T, T)`.
    """
    length = ops.shape(target_in)[1]
    if length is None:  # In a functional model.
        positions = ops.cumsum(ops.ones_like(target_in), axis=1)
        rows, columns = (ops.expand_dims(positions, (1, x)) for x in (3, 2))
        causal = ops.greater_equal(rows, columns)
    else:
        causal = causal_mask(length)
    return ops.logical_and(causal, padding_mask(target_in))


def mask_of_heads(mask: Tensor | None) -> Tensor | None:
    """Insert the heads axis into a rank-3 mask; return others unchanged."""
    if mask is None or len(mask.shape) != 3:
        return mask
    return ops.expand_dims(mask, 1)


def mask_of_keys(mask: Tensor | None) -> Tensor | None:
    """Let every query see the keys of a mask: `(B, S)` to `(B, 1, 1, S)`.

    Masks of other ranks are treated as in `mask_of_heads`.
    """
    if mask is None or len(mask.shape) != 2:
        return mask_of_heads(mask)
    return ops.expand_dims(mask, (1, 2))


def all_of(*masks: Tensor | None) -> Tensor | None:
    """Combine masks by "and"; return `None` if there are none."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None
