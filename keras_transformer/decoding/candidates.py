"""Finds the best next tokens after the live beams, and can record them.

Every log-probability is that of the model alone. What a rule forbids is left
out of the choice, not out of the sum over the vocabulary. The best are chosen
in two stages, which is several times faster on a CPU: the k largest of many
numbers lie in the k chunks with the largest maxima. Ties go to the lower
index, as in `tf.math.top_k`.

Axes: B batch, W beams, V vocabulary, C candidates of a step, P prefix,
t tokens written so far. In `top_of_chunks`: R rows, C chunks, M numbers in a
chunk.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer import config
from keras_transformer.config import SettingError
from keras_transformer.decoding.whole_characters import (
    any_broken,
    without_broken,
)

NONE = -float("inf")  # The score of a place that holds no hypothesis.
CHUNK = 64  # Logits in a chunk where V is not static.


class Rules(NamedTuple):
    """The rules for a hypothesis, in a search and in a draw."""

    search: config.Search
    banned_ids: tuple[int, ...] = ()
    bos_id: int = config.BOS_ID
    eos_id: int = config.EOS_ID
    pad_id: int = config.PAD_ID
    # The byte that each token stands for `(V,)`, if some do.
    byte_of: Any = None

    @property
    def never(self) -> list[int]:
        """Tokens that are never written."""
        # Some models begin with the token that ends.
        begins = {self.bos_id} - {self.eos_id}
        return sorted({self.pad_id, *begins, *self.banned_ids})

    @property
    def num_candidates(self) -> int:
        """Continuations that a step weighs, over all beams of a sentence.

        There are 2W, because W of them may all end. A single beam has one, so
        that it follows the best token and nothing else.
        """
        beams = self.search.beam_size
        return 2 * beams if beams > 1 else 1


def take_step(
    step: Callable[..., Any],
    rules: Rules,
    ids: tf.Tensor,
    position: tf.Tensor,
    state: Any,
    *memory: Any,
) -> tuple[Any, ...]:
    """Call `step`, and refuse what no search can use."""

    def as_before(old: tf.Tensor, new: Any) -> tf.Tensor:
        new = tf.convert_to_tensor(new, old.dtype)
        new.shape.assert_has_rank(old.shape.rank)
        old.shape[:2].assert_is_compatible_with(new.shape[:2])
        return new

    results = step(ids, position, state, *memory)
    try:
        logits, new, *rest = results
        # A list may stand for a tuple, and NumPy's arrays for tensors.
        state = tf.nest.map_structure(as_before, state, new, check_types=False)
        logits = tf.convert_to_tensor(logits)
        logits.shape.assert_is_compatible_with([*ids.shape, None])
    except (TypeError, ValueError) as error:
        expected = f"a function that returns logits (B, {ids.shape[1]}, V) and "
        expected += "a state of the structure, dtypes and axes of `state`"
        shown = tf.nest.map_structure(lambda t: getattr(t, "shape", t), results)
        raise SettingError("step", expected, shown) from error
    size = logits.shape[2]
    if size is not None and not 0 <= rules.eos_id < size:
        expected = f"an id of the logits, from 0 to {size - 1}"
        raise SettingError("eos_id", expected, rules.eos_id)
    is_first = tf.executing_eagerly() and position == 0
    if is_first and tf.reduce_any(logits != logits):
        expected = "a function whose logits are numbers"
        raise SettingError("step", expected, float("nan"))
    return logits, state, *rest


def continuations(
    rules: Rules,
    position: tf.Tensor,
    prefix: tf.Tensor,
    ids: tf.Tensor,
    log_probs: tf.Tensor,
    logits: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Find the best next tokens over all live beams of a sentence.

    Args:
        rules: What is allowed.
        position: The newest token's, an int32 scalar; 0 for the start token.
        prefix: int64 `(B, P)` from `padded_prefix`; P is statically 0 where
            there is none.
        ids: int64 `(B, W, 1 + t)`, the live beams, start token first.
        log_probs: float32 `(B, W)`, those of the beams; -inf for one that is
            not live.
        logits: `(B, W, V)` of any float dtype; V static, or a multiple of
            `CHUNK` and at least `2 * CHUNK`.

    Returns:
        Log-probabilities float32, parent beams int64 and tokens int64, each
        `(B, C)`, best first; -inf where there are fewer.
    """
    # Otherwise TensorFlow casts 2-byte logits after each reshape: three times.
    logits = tf.ensure_shape(tf.cast(logits, tf.float32), logits.shape)
    beams, size = rules.search.beam_size, logits.shape[-1]
    count = rules.num_candidates
    if size is None:
        size, width = tf.shape(logits, tf.int64)[-1], CHUNK
    else:
        width = chunk_width(size, (size * beams / count) ** 0.5)
    possible = allowed(rules, position, ids, logits, width)
    # The batch, which may be static, could not be inferred from a dynamic V.
    batch = -1 if logits.shape[0] is None else logits.shape[0]
    shape = [batch, beams, size // width, width]
    chunks = tf.reshape(possible, shape)
    maxima = tf.reduce_max(chunks, axis=-1)  # (B, W, chunks)
    sums = _log_sums(
        logits, maxima, shape if possible is logits else None
    )  # (B, W, 1)

    # A beam without any token has no logarithm of its sum.
    is_number = tf.math.is_finite(sums)
    offsets = tf.where(is_number, log_probs[:, :, None] - sums, NONE)

    # The tokens ruled out are few and mostly in the first chunk. We mask them
    # there, and again if that chunk is chosen: cheaper than a mask over V.
    ruled_out = _ruled_out(rules, position, width)
    # Of other chunks, and of the first. Adding is faster than selecting.
    masks = tf.where([[False], [True]] & ruled_out, NONE, 0.0)
    first = tf.reduce_max(chunks[:, :, 0] + masks[1], axis=-1)
    maxima = tf.concat([first[:, :, None], maxima[:, :, 1:]], axis=-1)

    def scores(inside: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        """Turn chunks of any beam into whole hypotheses' log-probabilities."""
        beam = chosen // (size // width)
        offset = tf.gather(offsets, beam, batch_dims=1)
        is_first = chosen % (size // width) == 0
        return inside + offset + tf.gather(masks, tf.cast(is_first, tf.int64))

    candidates, places = top_of_chunks(
        tf.reshape(chunks, [batch, beams * (size // width), width]),
        tf.reshape(maxima + offsets, [batch, beams * (size // width)]),
        count,
        scores,
    )
    found = (_number(candidates), places // size, places % size)

    # What may come next is seldom less than the whole vocabulary: within a
    # prefix, and where the best would break a character.
    restricts, has_prefix = [], prefix.shape[1] != 0
    if has_prefix:
        of_prefix = prefix_tokens(prefix, position)
        restricts.append(tf.reduce_any(of_prefix != rules.pad_id))
    if rules.byte_of is not None:
        restricts.append(any_broken(rules.byte_of, ids, position, *found[1:]))
    if not restricts:
        return found

    def best_restricted() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        possible = allowed(rules, position, ids, logits)
        if rules.byte_of is not None:
            possible = without_broken(rules.byte_of, ids, position, possible)
        if has_prefix:
            possible = begun(rules, of_prefix, logits, possible)
        scores = possible + offsets
        width = tf.shape(scores, tf.int64)[2]
        best, places = _top_k(tf.reshape(scores, [batch, beams * width]), count)
        return _number(best), places // width, places % width

    return tf.cond(tf.reduce_any(restricts), best_restricted, lambda: found)


def _number(scores: tf.Tensor) -> tf.Tensor:
    """Replace NaN, which a beam without any token would give, by -inf."""
    return tf.where(scores > NONE, scores, NONE)


def allowed(
    rules: Rules,
    position: tf.Tensor,
    ids: tf.Tensor,
    logits: tf.Tensor,
    width: int = 0,
) -> tf.Tensor:
    """Set to -inf what is ruled out beyond the first `width` tokens.

    If nothing is, return the same tensor.
    """
    if banned := [token for token in rules.never if token >= width]:
        logits = _without(logits, banned)
    if rules.search.min_length and rules.eos_id >= width:
        is_early = position + 1 < rules.search.min_length
        logits = tf.where(is_early, _without(logits, [rules.eos_id]), logits)
    if rules.search.no_repeat_ngram:
        logits = _without_repeats(
            logits, ids[:, :, 1:], rules.search.no_repeat_ngram
        )
    return logits


def _ruled_out(rules: Rules, position: tf.Tensor, width: int) -> tf.Tensor:
    """Mark which of the first `width` tokens may not come, bool `(width,)`."""
    tokens = np.arange(width)
    never = np.isin(tokens, rules.never)
    if not rules.search.min_length:
        return tf.constant(never)
    is_eos = tokens == rules.eos_id
    return never | (is_eos & (position + 1 < rules.search.min_length))


def _without(logits: tf.Tensor, banned: Sequence[int]) -> tf.Tensor:
    """Set to -inf what is never written."""
    size = logits.shape[-1] or tf.shape(logits)[-1]
    is_banned = tf.reduce_any(tf.one_hot(banned, size, True, False), axis=0)
    return tf.where(is_banned, NONE, logits)


def _without_repeats(logits: tf.Tensor, ids: tf.Tensor, n: int) -> tf.Tensor:
    """Set to -inf what would end a row of n tokens already in `ids`."""
    batch, beams, written = tf.unstack(tf.shape(ids))  # (B, W, t)
    rows = tf.maximum(written - n + 1, 0)  # Rows of n tokens; none while t < n.
    repeats = tf.fill([batch, beams, rows], True)
    for i in range(n - 1):
        # Where t < n there is no row, and perhaps no token to compare either.
        place = tf.maximum(written - n + 1 + i, 0)
        repeats &= ids[:, :, i : i + rows] == ids[:, :, place : place + 1]
    ends = ids[:, :, n - 1 : n - 1 + rows]  # (B, W, rows)
    places = tf.where(repeats)  # (repeats, 3)
    places = tf.concat(
        [places[:, :2], tf.gather_nd(ends, places)[:, None]], axis=1
    )
    return tf.tensor_scatter_nd_update(
        logits, places, tf.fill([tf.shape(places)[0]], NONE)
    )


def padded_prefix(prefix: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Add a column of PAD to a prefix `(B, P)`, once for a search: int64."""
    prefix = tf.cast(prefix, tf.int64)
    # Not `tf.pad`, which has no kernel for int64 on GPUs.
    more = tf.fill([tf.shape(prefix)[0], 1], tf.constant(pad_id, tf.int64))
    return tf.concat([prefix, more], axis=1)


def prefix_tokens(prefix: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Return the token after `position` of each row `(B,)`, PAD beyond it."""
    # Every position after the longest prefix reads the last column, PAD.
    column = tf.minimum(position, tf.shape(prefix)[1] - 1)
    return tf.gather(prefix, column, axis=1)


def _log_sums(
    logits: tf.Tensor, maxima: tf.Tensor, shape: Sequence[Any] | None
) -> tf.Tensor:
    """Compute the logarithm of the sum of exponentials, float32 `(B, W, 1)`.

    `maxima` has the largest logit of each chunk, and `shape` is the logits'
    shape in chunks, or None if some logits were ruled out before.
    """
    if shape is None:
        return tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
    # One fused pass. The largest probability is at least 1 / V, so its
    # logarithm loses no digits.
    shares = tf.reshape(tf.nn.softmax(logits), shape)
    largest = tf.argmax(maxima, axis=-1)  # (B, W)
    share = tf.reduce_max(tf.gather(shares, largest, batch_dims=2), axis=-1)
    sums = tf.reduce_max(maxima, axis=-1) - tf.math.log(share)
    return sums[:, :, None]


def begun(
    rules: Rules, tokens: tf.Tensor, logits: tf.Tensor, possible: tf.Tensor
) -> tf.Tensor:
    """Leave a sentence that is still within its prefix the next token alone.

    Args:
        rules: What is allowed.
        tokens: int64 `(B,)` from `prefix_tokens`.
        logits: float32 `(B, W, V)`.
        possible: The logits with -inf for what is ruled out; a prefix may hold
            that all the same.
    """
    tokens = tokens[:, None, None]
    fits = tf.range(tf.shape(logits, tf.int64)[2]) == tokens  # (B, 1, V)
    fitting = tf.where(fits, logits, NONE)
    return tf.where(tokens == rules.pad_id, possible, fitting)


def top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Do what `tf.math.top_k` does, in two stages.

    Args:
        rows: float tensor `(B, W, V)`, W and V static.
        k: How many, from 1 to V.

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
    """Find the k largest of each row of chunks.

    Args:
        chunks: float tensor `(R, C, M)`, M static; C static, or at least k.
        maxima: The largest score in each chunk, `(R, C)`.
        k: How many, from 1 to C M.
        scores: Called as `scores(inside, chosen)` with the chunks that are
            left `(R, c, M)` and their places int64 `(R, c)`; returns what to
            compare instead of the numbers themselves.

    Returns:
        The scores `(R, k)`, largest first, and their int64 indices among all
        C M numbers.
    """
    count, width = chunks.shape[1:]
    if count is not None and count <= k:
        chosen = tf.tile(
            np.arange(count, dtype="int64")[None], [tf.shape(chunks)[0], 1]
        )
        inside = chunks
    else:
        # Sorted, so that ties still go to the lower index.
        chosen = tf.sort(_top_k(maxima, k)[1])  # (R, k)
        inside = tf.gather(chunks, chosen, batch_dims=1)  # (R, k, M)
    if scores is not None:
        inside = scores(inside, chosen)
    left = min(count or k, k)
    values, places = _top_k(tf.reshape(inside, [-1, left * width]), k)
    chunk = tf.gather(chosen, places // width, batch_dims=1)
    return values, chunk * width + places % width


def _top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return `tf.math.top_k` with int64 indices, as no GPU kernel does."""
    values, indices = tf.math.top_k(rows, k)
    return values, tf.cast(indices, tf.int64)


def chunk_width(size: int, widest: float) -> int:
    """Find the largest divisor of `size` up to `widest`, or return `size`.

    Args:
        size: Numbers to divide into chunks of equal width, at least 1.
        widest: Most numbers in a chunk. The two stages take the least time
            when the second gets as many numbers as there are chunks.
    """
    width = max(n for n in range(1, max(1, int(widest)) + 1) if size % n == 0)
    return width if width > 1 else size


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
    wide, narrow = [batch, 0, candidates], [batch, 0, beam_size]
    return SearchHistory(
        log_probs=tf.zeros(wide),
        parents=tf.zeros(wide, tf.int64),
        tokens=tf.zeros(wide, tf.int64),
        ended=tf.zeros(wide, tf.bool),
        survivors=tf.zeros(narrow, tf.int64),
    )


def lengthened(history: SearchHistory, *step: tf.Tensor) -> SearchHistory:
    """Add a step, whose tensors have no axis t, to the history."""
    return SearchHistory(
        *(
            tf.concat([old, tf.cast(new, old.dtype)[:, None]], axis=1)
            for old, new in zip(history, step, strict=True)
        )
    )
