"""Masks as users of Keras give them, in the shapes that attention takes.

A mask is boolean and `True` means "may attend". Masks are combined as booleans.

Axes: B batch, H heads, T query length, S key length.
"""

import functools

from keras import ops

from keras_transformer.keras_internals import Tensor


def mask_of_keys(mask: Tensor | None) -> Tensor | None:
    """Let every query see the keys of a mask: `(B, S)` to `(B, 1, 1, S)`."""
    return None if mask is None else mask[:, None, None, :]


def mask_of_queries(mask: Tensor | None) -> Tensor | None:
    """Let the queries of a mask see all keys: `(B, T)` to `(B, 1, T, 1)`."""
    return None if mask is None else mask[:, None, :, None]


def mask_of_heads(mask: Tensor | None) -> Tensor | None:
    """Give a mask `(B, T, S)` the axis H; any other rank may lack it."""
    if mask is None or len(mask.shape) != 3:
        return mask
    return mask[:, None]


def mask_of_memory(mask: Tensor | None) -> Tensor | None:
    """The same, or `mask_of_keys` for a mask `(B, S)` of the memory."""
    if mask is not None and len(mask.shape) == 2:
        return mask_of_keys(mask)
    return mask_of_heads(mask)


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """Let query i see the keys up to i: `(T, S)`, the last axes but one."""
    rows, columns = (
        ops.arange(ops.shape(tensor)[-2]) for tensor in (query, key)
    )
    return rows[:, None] >= columns[None, :]


def all_of(*masks: Tensor | None) -> Tensor | None:
    """What all the given masks let see, or `None` if there is none."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None
