"""Records what a beam search weighed and chose at each of its steps.

Axes: B batch, W beams, C candidates of a step, t steps so far.
"""

from typing import NamedTuple

import tensorflow as tf


class SearchHistory(NamedTuple):
    """The candidates of every step, best first, and which of them lived on.

    Attributes:
        log_probs: float32 `(B, t, C)`, of the whole hypotheses in nats; -inf
            where there was no candidate.
        parents: int64 `(B, t, C)`, the live beams that they continue.
        tokens: int64 `(B, t, C)`, what they add.
        ended: bool `(B, t, C)`, by the end token or at the limit.
        survivors: int64 `(B, t, W)`, the candidate behind each live beam of
            the next step; -1 where there were fewer.
    """

    log_probs: tf.Tensor
    parents: tf.Tensor
    tokens: tf.Tensor
    ended: tf.Tensor
    survivors: tf.Tensor


def empty_history(
    batch: tf.Tensor, candidates: int, beam_size: int
) -> SearchHistory:
    """Begin the history before the first step."""

    def empty(width: int, dtype: tf.DType) -> tf.Tensor:
        return tf.zeros([batch, 0, width], dtype)

    return SearchHistory(
        log_probs=empty(candidates, tf.float32),
        parents=empty(candidates, tf.int64),
        tokens=empty(candidates, tf.int64),
        ended=empty(candidates, tf.bool),
        survivors=empty(beam_size, tf.int64),
    )


def lengthened(history: SearchHistory, *step: tf.Tensor) -> SearchHistory:
    """Add a step, whose tensors have no axis t, to the history."""
    return SearchHistory(
        *(
            tf.concat([old, tf.cast(new, old.dtype)[:, None]], axis=1)
            for old, new in zip(history, step, strict=True)
        )
    )
