"""Checks of a model's inputs that a graph cannot make.

In a graph an id beyond the vocabulary is an error of an operator, and unshifted
targets train as readily as shifted ones. So `fit` looks at its first batch
before there is a graph.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.config import PAD_ID
from keras_transformer.keras_internals import Tensor


def pair_of_ids(inputs: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs of a call: `(source, target_in)`.

    Raises:
        ValueError: If they are anything but two integer tensors of two axes.
    """
    is_pair = isinstance(inputs, list | tuple) and len(inputs) == 2
    if is_pair and all(map(_are_ids, inputs)):
        return tuple(inputs)
    raise ValueError(
        "`inputs` must be a pair `(source, target_in)` of integer tensors "
        "`(B, S)` and `(B, T)`. Received: "
        f"{keras.tree.map_structure(_kind_of, inputs)}"
    )


def _are_ids(ids: Any) -> bool:
    return (
        hasattr(ids, "shape")
        and len(ids.shape) == 2
        and "int" in keras.backend.standardize_dtype(ids.dtype)
    )


def _kind_of(ids: Any) -> str:
    if not hasattr(ids, "shape"):
        return type(ids).__name__
    return f"{keras.backend.standardize_dtype(ids.dtype)}{tuple(ids.shape)}"


def check_first_batch(
    x: Any, y: Any, class_weight: Any, vocab_size: int, y_is_ids: bool
) -> None:
    """Check what `fit` gets, and the first batch of a dataset.

    It raises and warns as `Transformer.fit` says. Data that a look would use
    up, such as a generator's first batch, passes unchecked, and so does a
    dataset of `kt.batches`.
    """
    if class_weight is not None:
        raise ValueError(
            "`class_weight` must be None: a target has a class at every place. "
            "Pass `sample_weight` (B, T), such as "
            "`np.vectorize(lambda id: weights.get(id, 1.0))(target_out)`. "
            f"Received: class_weight={class_weight}"
        )
    if hasattr(x, "element_spec") and hasattr(x, "take"):
        if getattr(x, "has_begin_tokens", False):
            return
        x, y = [*next(iter(x.take(1)), ()), None, None][:2]
    if isinstance(x, Mapping):
        pair_of_ids(x)  # Raises, and says what is expected.
    if not isinstance(x, list | tuple) or len(x) != 2:
        return
    if y_is_ids and y is None:
        raise ValueError(
            "`y` must be `target_out`, the ids that the model is to write. "
            "Received: None"
        )
    _seen("source", x[0], vocab_size)
    target_in = _seen("target_in", x[1], vocab_size)
    if y_is_ids:
        _seen("target_out", y, vocab_size)
    if not _are_shifted(target_in, y):
        warnings.warn(
            "`target_in` must begin with the begin token, the same in every "
            "row, and `target_out` without it, one place further left: "
            "otherwise a model learns to copy its target, and translates "
            "nothing. `kt.batch` makes a batch of texts.",
            stacklevel=4,  # The caller of `fit`.
        )


def _seen(name: str, ids: Any, vocab_size: int) -> np.ndarray | None:
    """Return a user's ids as an array, checked; None if they cannot be seen."""
    if hasattr(ids, "row_lengths"):
        raise ValueError(
            f"`{name}` must be a dense tensor padded with {PAD_ID}. Received: "
            f"a {type(ids).__name__}; its `to_tensor({PAD_ID})` makes one."
        )
    if not hasattr(ids, "shape") or 0 in ids.shape:
        return None
    ids = ops.convert_to_numpy(ids)
    are_whole = ids.dtype.kind in "iu" or np.array_equal(ids, np.floor(ids))
    if ids.ndim != 2 or not are_whole:
        raise ValueError(
            f"`{name}` must be ids, one for each token: integers of two axes. "
            f"Received: {ids.dtype}{ids.shape}"
        )
    if ids.max() >= vocab_size:
        raise ValueError(
            f"`{name}` must be ids up to {vocab_size - 1}, the last of the "
            f"vocabulary; padding is {PAD_ID}. Received: {ids.max()}"
        )
    return ids


def _are_shifted(target_in: np.ndarray | None, target_out: Any) -> bool:
    """Return whether rows begin with one token that the others lack.

    Which token it is, the tokenizer decides.
    """
    if target_in is None:
        return True
    is_row = target_in[:, 0] > PAD_ID
    begins = target_in[is_row, 0]
    if getattr(target_out, "shape", None) == target_in.shape:
        firsts = ops.convert_to_numpy(target_out)[is_row, 0]
        if len(begins) and np.array_equal(begins, firsts):
            return False
    return len(np.unique(begins)) <= 1
