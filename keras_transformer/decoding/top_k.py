"""The largest of many numbers in two stages, several times faster on a CPU.

The k largest lie in the k chunks with the largest maxima. Ties go to the lower
index, as in `tf.math.top_k`.

Axes: R rows, C chunks, M numbers in a chunk.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf


def chunk_width(size: int, widest: float) -> int:
    """The largest divisor of `size` up to `widest`, or `size` for want of one.

    Args:
        size: Numbers to divide into chunks of the same width. At least 1.
        widest: Most numbers in a chunk. The two stages together are shortest
            where as many are left to the second as there are chunks.
    """
    width = max(n for n in range(1, max(1, int(widest)) + 1) if size % n == 0)
    return width if width > 1 else size


def top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` in two stages.

    Args:
        rows: float tensor `(B, W, V)`, W and V static.
        k: How many. From 1 to V.

    Returns:
        The values `(B, W, k)`, largest first, and their int64 indices.
    """
    beams, size = rows.shape[1:]
    width = chunk_width(size, (size / k) ** 0.5)
    chunks = tf.reshape(rows, [-1, size // width, width])
    values, indices = top_of_chunks(chunks, tf.reduce_max(chunks, axis=-1), k)
    shape = [-1, beams, k]
    return tf.reshape(values, shape), tf.reshape(indices, shape)


def top_of_chunks(
    chunks: tf.Tensor,
    maxima: tf.Tensor,
    k: int,
    scores: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The k largest of each row of chunks.

    Args:
        chunks: float tensor `(R, C, M)`, C and M static.
        maxima: The largest score in each, `(R, C)`.
        k: How many. From 1 to C M.
        scores: Called as `scores(inside, chosen)` with the chunks that are
            left `(R, c, M)` and their places int64 `(R, c)`; returns what is
            compared instead of the numbers themselves.

    Returns:
        The scores `(R, k)`, largest first, and their int64 indices among all
        C M numbers.
    """
    count, width = chunks.shape[1:]
    if count <= k:
        chosen = tf.tile(
            np.arange(count, dtype="int64")[None], [tf.shape(chunks)[0], 1]
        )
        inside = chunks
    else:
        # In order, so that ties stay so.
        chosen = tf.sort(_top_k(maxima, k)[1])  # (R, k)
        inside = tf.gather(chunks, chosen, batch_dims=1)  # (R, k, M)
    if scores is not None:
        inside = scores(inside, chosen)
    values, places = _top_k(tf.reshape(inside, [-1, min(count, k) * width]), k)
    chunk = tf.gather(chosen, places // width, batch_dims=1)
    return values, chunk * width + places % width


def _top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` with indices int64, which no kernel for GPUs gives."""
    values, indices = tf.math.top_k(rows, k)
    return values, tf.cast(indices, tf.int64)
