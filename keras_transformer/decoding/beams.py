"""The hypotheses of a search, and how a step makes longer ones of them.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, C candidates of
a step, P prefix, t tokens written so far.
"""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.decoding.continuations import NONE, Rules, continuations
from keras_transformer.decoding.search_history import SearchHistory, lengthened


class Sentences(NamedTuple):
    """What a search knows of its sentences from the start."""

    rows: tf.Tensor  # (B,) int64, their places in the result
    limits: tf.Tensor  # (B,) int64
    prefix: tf.Tensor  # (B, P) int64, its last column PAD; P = 0 for none


class Beams(NamedTuple):
    """Live and finished hypotheses, and how they came about if asked for."""

    live_ids: tf.Tensor  # (B, W, 1 + t) int64, BOS first
    live_log_probs: tf.Tensor  # (B, W) float32, best first
    finished_ids: tf.Tensor  # (B, N, 1 + t) int64, BOS first
    finished_scores: tf.Tensor  # (B, N) float32, best first
    history: SearchHistory | tuple[()] = ()


def length_normaliser(length: tf.Tensor, length_penalty: float) -> tf.Tensor:
    """The divisor ((5 + L) / 6)^alpha of Wu et al. (2016), equation 14.

    Args:
        length: Integer tensor of any shape, tokens with the end token.
        length_penalty: The exponent alpha. At least 0.

    Returns:
        A float32 tensor of the shape of `length`.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def first_beams(
    rules: Rules,
    limits: tf.Tensor,
    history: SearchHistory | tuple[()] = (),
) -> Beams:
    """One live beam, or with the limit 0 one finished empty hypothesis."""
    may_write = limits[:, None] > 0  # (B, 1)
    others = tf.fill([tf.size(limits), rules.search.beam_size - 1], NONE)
    live = tf.concat([tf.where(may_write, 0.0, NONE), others], axis=1)
    finished = tf.concat([tf.where(may_write, NONE, 0.0), others], axis=1)
    finished = finished[:, : rules.search.n_best]
    bos_id = tf.constant(rules.bos_id, tf.int64)
    return Beams(
        live_ids=tf.fill(tf.shape(live[..., None]), bos_id),
        live_log_probs=live,
        finished_ids=tf.fill(tf.shape(finished[..., None]), bos_id),
        finished_scores=finished,
        history=history,
    )


def is_open(beams: Beams) -> tf.Tensor:
    """Whether a sentence still has a live beam, bool `(B,)`."""
    return beams.live_log_probs[:, 0] > NONE


def branch(
    rules: Rules,
    sentences: Sentences,
    position: tf.Tensor,
    beams: Beams,
    logits: tf.Tensor,
) -> tuple[Beams, tf.Tensor]:
    """Write one token: t grows by one.

    Returns:
        The beams, and the parent of each live one, int64 `(B, W)`.
    """
    length = tf.cast(position + 1, tf.int64)
    log_probs, parents, tokens = continuations(
        rules,
        position,
        sentences.prefix,
        beams.live_ids,
        beams.live_log_probs,
        logits,
    )
    ids = tf.concat(
        [take(beams.live_ids, parents), tokens[:, :, None]], axis=-1
    )  # (B, C, 1 + t)
    at_limit = length >= sentences.limits[:, None]  # (B, 1)
    ended = (tokens == rules.eos_id) | at_limit  # (B, C)

    # Those that ended compete with the finished ones, which come first: an
    # equal score found later does not replace the earlier hypothesis.
    normaliser = length_normaliser(length, rules.search.length_penalty)
    scores = tf.where(ended, log_probs / normaliser, NONE)
    scores = tf.concat([beams.finished_scores, scores], axis=1)
    finished_ids = padded(beams.finished_ids, 1, rules.pad_id)
    finished_ids = tf.concat([finished_ids, ids], axis=1)
    finished_scores, best = tf.math.top_k(scores, rules.search.n_best)
    finished_ids = take(finished_ids, best)

    # The others live on.
    live, best = tf.math.top_k(
        tf.where(ended, NONE, log_probs), rules.search.beam_size
    )
    history = beams.history
    if history:
        survivors = tf.where(live > NONE, best, -1)
        history = lengthened(
            history, log_probs, parents, tokens, ended, survivors
        )
    beams = Beams(
        live_ids=take(ids, best),
        live_log_probs=_unless_done(
            rules, sentences.limits, live, finished_scores
        ),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        history=history,
    )
    return beams, take(parents, best)


def padded(ids: tf.Tensor, more: int | tf.Tensor, pad_id: int) -> tf.Tensor:
    """`(B, N, t)` to `(B, N, t + more)`; `tf.pad` of int64 knows no GPU."""
    batch, hypotheses, _ = tf.unstack(tf.shape(ids))
    pad = tf.fill([batch, hypotheses, more], tf.constant(pad_id, tf.int64))
    return tf.concat([ids, pad], axis=2)


def take(tensor: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Pick `places` `(B, C)` along the second axis of `(B, W, ...)`."""
    return tf.gather(tensor, places, axis=1, batch_dims=1)


def _unless_done(
    rules: Rules,
    limits: tf.Tensor,
    live: tf.Tensor,
    finished_scores: tf.Tensor,
) -> tf.Tensor:
    """Give up the live beams that can no longer change the result.

    Log-probabilities only fall and the normaliser is largest at the limit, so
    no descendant of the best live beam scores above the bound used here.
    """
    bound = live[:, 0] / length_normaliser(limits, rules.search.length_penalty)
    is_done = finished_scores[:, -1] >= bound
    return tf.where(is_done[:, None], NONE, live)
