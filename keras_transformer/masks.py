"""Which positions attention may see, made once from ids (section 3.2.3).

A mask is boolean and `True` means "may attend". Masks are combined as booleans
and become a score only inside the attention, so two of them never add up to
minus infinity.

Axes: B batch, T query length, S key length.
"""

import keras
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.keras_internals import Tensor


def padding_mask(ids: Tensor) -> Tensor:
    """Let every query see the keys that are not padding.

    Args:
        ids: Integer tensor `(B, S)`; padding is id 0.

    Returns:
        Boolean tensor `(B, 1, 1, S)`.
    """
    return ops.not_equal(ids, PAD_ID)[:, None, None, :]


def causal_mask(length: int | Tensor) -> Tensor:
    """Let position i see the positions up to i.

    Args:
        length: Target length T, an integer or a scalar tensor.

    Returns:
        Boolean tensor `(1, 1, T, T)`.
    """
    positions = ops.arange(length)
    return (positions[:, None] >= positions[None, :])[None, None]


def target_mask(target_in: Tensor) -> Tensor:
    """Combine the padding and the causal mask of a decoder's input.

    Args:
        target_in: Integer tensor `(B, T)`.

    Returns:
        Boolean tensor `(B, 1, T, T)`.
    """
    if isinstance(target_in, keras.KerasTensor):
        # Of a functional model, whose lengths are not known.
        positions = ops.cumsum(ops.ones_like(target_in), axis=1)
        causal = (positions[:, :, None] >= positions[:, None, :])[:, None]
    else:
        causal = causal_mask(ops.shape(target_in)[1])
    return ops.logical_and(causal, padding_mask(target_in))
