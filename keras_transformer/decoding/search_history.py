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


def with_results(
    done: SearchHistory, rows: tf.Tensor, history: SearchHistory
) -> SearchHistory:
    """Write the histories of `rows` into those of all sentences.

    Args:
        done: B sentences, of at most as many steps as `history`.
        rows: int64 `(b, 1)`, places in `done`.
        history: b sentences.

    Returns:
        All B sentences, as long as `history`; one that was finished before
        has no candidates (log-probability -inf) in the steps added.
    """
    return SearchHistory(
        *(
            tf.tensor_scatter_nd_update(_as_long(old, new), rows, new)
            for old, new in zip(done, history, strict=True)
        )
    )


def _as_long(old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Pad `old` `(B, t, C)` to as many steps as `new` has."""
    batch, steps, width = tf.unstack(tf.shape(old))
    nothing = tf.constant(-float("inf") if old.dtype == tf.float32 else 0)
    more = tf.fill(
        [batch, tf.shape(new)[1] - steps, width], tf.cast(nothing, old.dtype)
    )
    return tf.concat([old, more], axis=1)
