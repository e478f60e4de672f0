"""What may come next: the best tokens after the live beams of a sentence.

Every log-probability is that of the model alone. What a rule forbids is left
out of the choice, not out of the sum over the vocabulary.

Axes: B batch, W beams, V vocabulary, C candidates of a step, P prefix,
t tokens written so far.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_transformer import config

NONE = -float("inf")  # The score of a place that holds no hypothesis.
# Of a row of logits, in the first stage of `top_k`: for V = 32,000 and k = 11
# the two stages together are shortest near the square root of V / k.
_WIDEST_CHUNK = 64
# Forbidden tokens that are dropped from a few more candidates; more of them
# are masked in the logits, which costs a pass over V.
_FEW = 8


class Rules(NamedTuple):
    """What a hypothesis may look like, in a search and in a draw.

    Of a draw `beam_size` and `n_best` are the number of draws.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    min_length: int = 0
    banned_ids: tuple[int, ...] = ()
    no_repeat_ngram: int = 0
    bos_id: int = config.BOS_ID
    eos_id: int = config.EOS_ID
    pad_id: int = config.PAD_ID

    @property
    def never(self) -> list[int]:
        """Tokens that are not written in any place."""
        return sorted({self.pad_id, self.bos_id, *self.banned_ids})

    @property
    def num_candidates(self) -> int:
        """Continuations that a step weighs, over all beams of a sentence.

        2W: W of them may all end there. A single beam has one, so that it
        follows the best token and nothing else.
        """
        return 2 * self.beam_size if self.beam_size > 1 else 1


def continuations(
    rules: Rules,
    position: tf.Tensor,
    prefix: tf.Tensor,
    ids: tf.Tensor,
    log_probs: tf.Tensor,
    logits: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best next tokens over all live beams of a sentence.

    Args:
        rules: What is allowed.
        position: Of the newest token, an int32 scalar; 0 for the start token.
        prefix: int64 `(B, P)`, as from `padded_prefix`; P is statically 0 where
            there is none.
        ids: int64 `(B, W, 1 + t)`, the live beams, start token first.
        log_probs: float32 `(B, W)`, theirs; -inf for one that is not live.
        logits: `(B, W, V)` of any float dtype, V static.

    Returns:
        Log-probabilities float32, parent beams int64 and tokens int64, each
        `(B, C)`, best first; -inf where there are fewer.
    """
    count = rules.num_candidates
    logits = tf.cast(logits, tf.float32)  # (B, W, V)
    never = rules.never
    spare = [*never, rules.eos_id]
    allowed = logits
    if len(never) > _FEW:
        allowed = without(allowed, never)
        spare = [rules.eos_id]
    if rules.no_repeat_ngram:
        allowed = without_repeats(allowed, ids[:, :, 1:], rules.no_repeat_ngram)
    # A few spare ones: an early EOS and the like drop out of those that
    # remain, which is cheaper than a mask over V.
    per_beam = min(count + len(spare), logits.shape[-1])
    best, tokens = top_k(allowed, per_beam)  # (B, W, per_beam)
    sums = _log_sums(logits, best, tokens, allowed is logits)
    candidates = best - sums
    is_early = (tokens == rules.eos_id) & (position + 1 < rules.min_length)
    for token in never if spare[:-1] else ():
        is_early |= tokens == token
    candidates = tf.where(is_early, NONE, candidates)
    if prefix.shape[1] != 0:
        candidates, tokens = _forced(
            rules, position, prefix, logits, sums, candidates, tokens
        )
    candidates += log_probs[:, :, None]
    candidates = tf.where(candidates > NONE, candidates, NONE)  # No NaN.

    flat = [tf.shape(tokens)[0], rules.beam_size * per_beam]
    candidates, chosen = _plain_top_k(tf.reshape(candidates, flat), count)
    tokens = tf.gather(tf.reshape(tokens, flat), chosen, batch_dims=1)
    return candidates, chosen // per_beam, tokens


def top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` in two stages, several times faster on a CPU.

    The k largest of a row lie in the k chunks with the largest maxima. Ties
    go to the lower index, as in `tf.math.top_k`.

    Args:
        rows: float tensor `(B, W, V)`, V static.
        k: How many. From 1 to V.

    Returns:
        The values `(B, W, k)`, largest first, and their int64 indices.
    """
    size = rows.shape[-1]
    width = max(n for n in range(1, _WIDEST_CHUNK + 1) if size % n == 0)
    if size // width <= k or width == 1:
        return _plain_top_k(rows, k)
    batch, beams = tf.unstack(tf.shape(rows)[:2])
    chunks = tf.reshape(rows, [batch, beams, size // width, width])
    _, chosen = _plain_top_k(tf.reduce_max(chunks, axis=-1), k)
    chosen = tf.sort(chosen)  # (B, W, k); in order, so that ties stay so
    inside = tf.gather(chunks, chosen, batch_dims=2)  # (B, W, k, width)
    values, places = _plain_top_k(
        tf.reshape(inside, [batch, beams, k * width]), k
    )
    chunk = tf.gather(chosen, places // width, batch_dims=2)
    return values, chunk * width + places % width


def _plain_top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` with indices int64, which no kernel for GPUs gives."""
    values, indices = tf.math.top_k(rows, k)
    return values, tf.cast(indices, tf.int64)


def without(logits: tf.Tensor, banned: Sequence[int]) -> tf.Tensor:
    """-inf for what is never written."""
    is_banned = tf.reduce_any(
        tf.one_hot(banned, logits.shape[-1], True, False), axis=0
    )
    return tf.where(is_banned, NONE, logits)


def without_repeats(logits: tf.Tensor, ids: tf.Tensor, n: int) -> tf.Tensor:
    """-inf for what would end a row of n tokens that `ids` holds already."""
    batch, beams, written = tf.unstack(tf.shape(ids))  # (B, W, t)
    rows = tf.maximum(written - n + 1, 0)  # Rows of n tokens; none while t < n.
    repeats = tf.fill([batch, beams, rows], True)
    for i in range(n - 1):
        # Where t < n there is no row, and perhaps no token to compare either.
        place = tf.maximum(written - n + 1 + i, 0)
        latest = ids[:, :, place : place + 1]
        repeats &= ids[:, :, i : i + rows] == latest
    ends = ids[:, :, n - 1 : n - 1 + rows]  # (B, W, rows)
    places = tf.where(repeats)  # (repeats, 3)
    places = tf.concat(
        [places[:, :2], tf.gather_nd(ends, places)[:, None]], axis=1
    )
    return tf.tensor_scatter_nd_update(
        logits, places, tf.fill([tf.shape(places)[0]], NONE)
    )


def padded_prefix(prefix: tf.Tensor, pad_id: int) -> tf.Tensor:
    """A prefix `(B, P)` with a column of PAD at its end, once for a search."""
    prefix = tf.cast(prefix, tf.int64)
    # Not `tf.pad`, which has no kernel for int64 on GPUs.
    more = tf.fill([tf.shape(prefix)[0], 1], tf.constant(pad_id, tf.int64))
    return tf.concat([prefix, more], axis=1)


def prefix_tokens(prefix: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """The tokens `(B,)` that follow `position`; PAD where the prefix ends.

    Args:
        prefix: int64 `(B, P)`, as from `padded_prefix`.
        position: An int32 scalar.
    """
    # All positions after the longest prefix find its last column.
    column = tf.minimum(position, tf.shape(prefix)[1] - 1)
    return tf.gather(prefix, column, axis=1)


def _log_sums(
    logits: tf.Tensor, best: tf.Tensor, tokens: tf.Tensor, is_largest: bool
) -> tf.Tensor:
    """The logarithm of the sum of exponentials.

    Args:
        logits: float32 `(B, W, V)`.
        best: The largest of those allowed, `(B, W, C)`.
        tokens: Where they are, int64 `(B, W, C)`.
        is_largest: Whether the first of them is the largest of all.

    Returns:
        float32 `(B, W, 1)`.
    """
    if not is_largest:
        return tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
    # One fused pass. The largest probability is at least 1 / V, so that its
    # logarithm loses no digits.
    share = tf.gather(tf.nn.softmax(logits), tokens[:, :, :1], batch_dims=2)
    return best[:, :, :1] - tf.math.log(share)


def _forced(
    rules: Rules,
    position: tf.Tensor,
    prefix: tf.Tensor,
    logits: tf.Tensor,
    sums: tf.Tensor,
    candidates: tf.Tensor,
    tokens: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The prefix's token as the only candidate of a beam, where there is one.

    Args:
        rules: What is allowed.
        position: Of the newest token.
        prefix: int64 `(B, P)`, as from `padded_prefix`.
        logits: float32 `(B, W, V)`.
        sums: Their `_log_sums`.
        candidates: Log-probabilities `(B, W, C)` of this step alone.
        tokens: int64 `(B, W, C)`.

    Returns:
        The candidates and the tokens.
    """
    token = prefix_tokens(prefix, position)
    has_prefix = (token != rules.pad_id)[:, None, None]  # (B, 1, 1)
    log_prob = tf.gather(logits, token[:, None], axis=2, batch_dims=1) - sums
    is_first = tf.range(tf.shape(tokens)[2]) == 0
    only = tf.where(is_first, log_prob, NONE)
    return (
        tf.where(has_prefix, only, candidates),
        tf.where(has_prefix, token[:, None, None], tokens),
    )
