"""Beam search over any step function (section 6.1).

The search knows ids and scores, never a model: `step` says which token may
come next, the search decides which hypotheses to follow.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, C candidates of
a step, t tokens written so far, L tokens of the longest hypothesis.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer import config

Step = Callable[[tf.Tensor, tf.Tensor, Any], tuple[tf.Tensor, Any]]

_NONE = -float("inf")  # The score of a place that holds no hypothesis.
_WIDEST_CHUNK = 256  # Of a row of logits, in the first stage of `top_k`.


class BeamResult(NamedTuple):
    """The hypotheses of every sentence, best first.

    Attributes:
        ids: int32 `(B, N, L)`, PAD after the end token.
        scores: float32 `(B, N)`, length-normalised log-probability in nats.
        lengths: int32 `(B, N)`, tokens with the end token.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor


class _Rules(NamedTuple):
    limits: tf.Tensor  # (B,) int32
    beam_size: int
    length_penalty: float
    n_best: int
    min_length: int
    bos_id: int
    eos_id: int
    pad_id: int


class _Beams(NamedTuple):
    live_ids: tf.Tensor  # (B, W, 1 + t) int32, BOS first
    live_log_probs: tf.Tensor  # (B, W) float32, best first
    finished_ids: tf.Tensor  # (B, N, 1 + t) int32, BOS first
    finished_scores: tf.Tensor  # (B, N) float32, best first


def beam_search(
    step: Step,
    state: Any,
    *,
    max_lengths: tf.Tensor,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    min_length: int = 0,
    bos_id: int = config.BOS_ID,
    eos_id: int = config.EOS_ID,
    pad_id: int = config.PAD_ID,
) -> BeamResult:
    """Find the best-scored sequences that `step` can write.

    A hypothesis ends with its end token, or without one at the sentence's
    limit; either way its score is its log-probability divided by
    `length_normaliser` of its length. One beam is greedy decoding. Works
    eagerly and in a `tf.function`, where no batch shape needs a new trace.

    Args:
        step: Called as `step(ids, position, state)` with the newest ids
            int32 `(B, W)` and their position, an int32 scalar that is 0 for
            the start token. Returns the logits `(B, W, V)` of the next token,
            of any float dtype, V static, and the new state.
        state: Nest of tensors `(B, W, ...)`, reordered along W as beams
            branch. An axis after these two that starts with the static size
            0, such as the time axis of a cache, may grow. What belongs to the
            sentence rather than to a beam is best closed over by `step`.
        max_lengths: int32 `(B,)`, each sentence's limit in tokens, the end
            token included. With the limit 0 the hypothesis is empty, score 0.
        beam_size: Live hypotheses per sentence, W. At least 1.
        length_penalty: The exponent alpha. At least 0.
        n_best: Hypotheses returned, N. From 1 to `beam_size`.
        min_length: Fewest tokens, the end token included, of a hypothesis
            that ends before the limit.
        bos_id: The start token, never produced.
        eos_id: The end token.
        pad_id: Fills the ids, never produced.

    Returns:
        A `BeamResult`. Where fewer than N hypotheses exist, the others are
        empty and score -inf.

    Raises:
        ValueError: If `beam_size`, `length_penalty` or `n_best` is out of
            range.
    """
    check_arguments(beam_size, length_penalty, n_best)
    rules = _Rules(
        limits=tf.cast(max_lengths, tf.int32),
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        min_length=min_length,
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
    )
    start = (tf.constant(0), _first_beams(rules), state)
    _, beams, _ = tf.while_loop(
        lambda position, beams, state: tf.reduce_any(_is_open(beams)),
        functools.partial(_advance, step, rules),
        start,
        shape_invariants=_shape_invariants(*start),
    )
    ids = beams.finished_ids[:, :, 1:]  # (B, N, L), without BOS
    lengths = tf.reduce_sum(tf.cast(ids != pad_id, tf.int32), axis=-1)
    return BeamResult(ids, beams.finished_scores, lengths)


def length_normaliser(length: tf.Tensor, length_penalty: float) -> tf.Tensor:
    """The divisor ((5 + L) / 6)^alpha of Wu et al. (2016), equation 14.

    Args:
        length: int32 tensor of any shape, tokens with the end token.
        length_penalty: The exponent alpha. At least 0.

    Returns:
        A float32 tensor of the shape of `length`.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def top_k(rows: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` in two stages, several times faster on a CPU.

    The k largest of a row lie in the k chunks with the largest maxima. Ties
    go to the lower index, as in `tf.math.top_k`.

    Args:
        rows: float tensor `(B, W, V)`, V static.
        k: How many. From 1 to V.

    Returns:
        The values `(B, W, k)`, largest first, and their int32 indices.
    """
    size = rows.shape[-1]
    width = max(n for n in range(1, _WIDEST_CHUNK + 1) if size % n == 0)
    if size // width <= k or width == 1:
        return tf.math.top_k(rows, k)
    batch, beams = tf.unstack(tf.shape(rows)[:2])
    chunks = tf.reshape(rows, [batch, beams, size // width, width])
    _, chosen = tf.math.top_k(tf.reduce_max(chunks, axis=-1), k)
    chosen = tf.sort(chosen)  # (B, W, k); in order, so that ties stay so
    inside = tf.gather(chunks, chosen, batch_dims=2)  # (B, W, k, width)
    values, places = tf.math.top_k(
        tf.reshape(inside, [batch, beams, k * width]), k
    )
    chunk = tf.gather(chosen, places // width, batch_dims=2)
    return values, chunk * width + places % width


def check_arguments(beam_size: int, length_penalty: float, n_best: int) -> None:
    """Refuse what `beam_search` cannot work with, before anything is loaded.

    Raises:
        ValueError: If an argument is out of range.
    """
    if beam_size < 1:
        raise ValueError(
            f"`beam_size` must be at least 1. Received: beam_size={beam_size}"
        )
    if not 0 <= length_penalty < float("inf"):
        # The early stop rests on a divisor that never falls with the length.
        raise ValueError(
            "`length_penalty` must be at least 0 and finite. Received: "
            f"length_penalty={length_penalty}"
        )
    if not 1 <= n_best <= beam_size:
        raise ValueError(
            "`n_best` must be from 1 to `beam_size`. Received: "
            f"n_best={n_best}, beam_size={beam_size}"
        )


def _first_beams(rules: _Rules) -> _Beams:
    """One live beam, or with the limit 0 one finished empty hypothesis."""
    may_write = rules.limits[:, None] > 0  # (B, 1)
    others = tf.fill([tf.size(rules.limits), rules.beam_size - 1], _NONE)
    live = tf.concat([tf.where(may_write, 0.0, _NONE), others], axis=1)
    finished = tf.concat([tf.where(may_write, _NONE, 0.0), others], axis=1)
    finished = finished[:, : rules.n_best]
    return _Beams(
        live_ids=tf.fill(tf.shape(live[..., None]), rules.bos_id),
        live_log_probs=live,
        finished_ids=tf.fill(tf.shape(finished[..., None]), rules.bos_id),
        finished_scores=finished,
    )


def _is_open(beams: _Beams) -> tf.Tensor:
    """Whether a sentence still has a live beam, bool `(B,)`."""
    return beams.live_log_probs[:, 0] > _NONE


def _shape_invariants(
    position: tf.Tensor, beams: _Beams, state: Any
) -> tuple[tf.TensorShape, _Beams, Any]:
    """Ids grow along their last axis, the state along its empty axes."""

    def of_state(tensor):
        leading, rest = tensor.shape[:2], tensor.shape[2:]
        return leading.concatenate([size or None for size in rest])

    return (
        position.shape,
        _Beams(
            live_ids=beams.live_ids.shape[:2].concatenate([None]),
            live_log_probs=beams.live_log_probs.shape,
            finished_ids=beams.finished_ids.shape[:2].concatenate([None]),
            finished_scores=beams.finished_scores.shape,
        ),
        tf.nest.map_structure(of_state, state),
    )


def _advance(
    step: Step, rules: _Rules, position: tf.Tensor, beams: _Beams, state: Any
) -> tuple[tf.Tensor, _Beams, Any]:
    """Write one token: t grows by one."""
    length = position + 1
    logits, state = step(beams.live_ids[:, :, -1], position, state)
    log_probs, parents, tokens = _continuations(rules, length, beams, logits)
    ids = tf.concat(
        [_take(beams.live_ids, parents), tokens[:, :, None]], axis=-1
    )  # (B, C, 1 + t)
    at_limit = length >= rules.limits[:, None]  # (B, 1)
    ended = (tokens == rules.eos_id) | at_limit  # (B, C)

    # Those that ended compete with the finished ones, which come first: an
    # equal score found later does not replace the earlier hypothesis.
    normaliser = length_normaliser(length, rules.length_penalty)
    scores = tf.where(ended, log_probs / normaliser, _NONE)
    scores = tf.concat([beams.finished_scores, scores], axis=1)
    finished_ids = tf.pad(
        beams.finished_ids,
        [[0, 0], [0, 0], [0, 1]],
        constant_values=rules.pad_id,
    )
    finished_ids = tf.concat([finished_ids, ids], axis=1)
    finished_scores, best = tf.math.top_k(scores, rules.n_best)
    finished_ids = _take(finished_ids, best)

    # The others live on.
    live, best = tf.math.top_k(
        tf.where(ended, _NONE, log_probs), rules.beam_size
    )
    parents = _take(parents, best)
    return (
        length,
        _Beams(
            live_ids=_take(ids, best),
            live_log_probs=_unless_done(rules, live, finished_scores),
            finished_ids=finished_ids,
            finished_scores=finished_scores,
        ),
        tf.nest.map_structure(lambda t: _take(t, parents), state),
    )


def _continuations(
    rules: _Rules, length: tf.Tensor, beams: _Beams, logits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best next tokens over all live beams of a sentence.

    Returns:
        Log-probabilities float32, parent beams int32 and tokens int32, each
        `(B, C)`, best first.
    """
    # 2W candidates: W of them may all end here. A single beam has one, so
    # that it follows the best token and nothing else.
    count = 2 * rules.beam_size if rules.beam_size > 1 else 1
    logits = tf.cast(logits, tf.float32)  # (B, W, V)
    # Three spare: PAD, BOS and an early EOS drop out of the few that remain,
    # which is cheaper than a mask over V.
    per_beam = min(count + 3, logits.shape[-1])
    best, tokens = top_k(logits, per_beam)  # (B, W, per_beam)
    largest = best[:, :, :1]
    log_sum = tf.math.log(
        tf.reduce_sum(tf.exp(logits - largest), axis=-1, keepdims=True)
    )
    log_probs = beams.live_log_probs[:, :, None] + (best - largest - log_sum)
    allowed = (
        (log_probs > _NONE)  # Neither is a NaN.
        & (tokens != rules.pad_id)
        & (tokens != rules.bos_id)
        & ((tokens != rules.eos_id) | (length >= rules.min_length))
    )
    log_probs = tf.where(allowed, log_probs, _NONE)

    flat = [tf.shape(tokens)[0], rules.beam_size * per_beam]
    log_probs, chosen = tf.math.top_k(tf.reshape(log_probs, flat), count)
    tokens = tf.gather(tf.reshape(tokens, flat), chosen, batch_dims=1)
    return log_probs, chosen // per_beam, tokens


def _take(tensor: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Pick `places` `(B, C)` along the second axis of `(B, W, ...)`."""
    return tf.gather(tensor, places, axis=1, batch_dims=1)


def _unless_done(
    rules: _Rules, live: tf.Tensor, finished_scores: tf.Tensor
) -> tf.Tensor:
    """Give up the live beams that can no longer change the result.

    Log-probabilities only fall and the normaliser is largest at the limit, so
    no descendant of the best live beam scores above the bound used here.
    """
    bound = live[:, 0] / length_normaliser(rules.limits, rules.length_penalty)
    is_done = finished_scores[:, -1] >= bound
    return tf.where(is_done[:, None], _NONE, live)
