"""Random sampling of translations, over any step function.

It offers what Holtzman et al. (2020) compare: temperature, the `top_k`
likeliest tokens, and nucleus sampling (`top_p`).

Ids are int64 inside, as in `beam_search`.

Axes: B batch, N draws, V vocabulary, K candidates of a draw, P prefix,
t tokens written so far, L tokens of the longest draw.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.config import Sampling
from keras_transformer.decoding.beam_search import (
    BeamResult,
    Step,
    growing_after,
    length_normaliser,
)
from keras_transformer.decoding.candidates import (
    NONE,
    Rules,
    allowed,
    begun,
    padded_prefix,
    prefix_tokens,
    top_k,
)
from keras_transformer.decoding.whole_characters import without_broken


class _Draws(NamedTuple):
    ids: tf.Tensor  # (B, N, 1 + t) int64, BOS first
    log_probs: tf.Tensor  # (B, N) float32
    is_open: tf.Tensor  # (B, N) bool


def sample(
    rules: Rules,
    step: Step,
    state: Any,
    *,
    max_lengths: tf.Tensor,
    seeds: tf.Tensor,
    prefix: tf.Tensor | None = None,
) -> BeamResult:
    """Draw sequences token by token from what `step` predicts.

    A draw ends with its end token, or without one at the sentence's limit. Its
    score is that of the plain model, as in `beam_search`: no temperature,
    nothing cut. A row's draws depend on its seed and its logits alone: not on
    its place, its neighbours or their limits. Sampling works eagerly and in a
    `tf.function`, which needs no new trace for a new batch shape.

    The arguments are those of `search_by`, with N in place of W, but the
    state is never reordered, and the end token is drawn where nothing else is
    allowed. `seeds` has a pair for each row, int32 `(B, 2)`. Of the settings,
    `sampling` says how to draw (its seed is not used), and `n_best` how many
    independent draws to make, some of which may be alike.

    Returns:
        A `BeamResult`, best first. Where the limit is 0, the first draw is
        empty with score 0 and the others score -inf.
    """
    n_best = rules.search.n_best
    limits = tf.cast(max_lengths, tf.int64)
    batch = tf.size(limits)
    uniforms = _uniforms(seeds, tf.reduce_max(max_lengths), n_best)
    sampling = rules.search.sampling or Sampling()
    padded = None if prefix is None else padded_prefix(prefix, rules.pad_id)

    def advance(
        position: tf.Tensor, draws: _Draws, state: Any
    ) -> tuple[tf.Tensor, _Draws, Any]:
        """Write one token: t grows by one."""
        length = position + 1
        newest = tf.cast(draws.ids[:, :, -1], tf.int32)
        logits, state = step(newest, position, state)
        logits = tf.cast(logits, tf.float32)  # (B, N, V)
        possible = allowed(rules, position, draws.ids, logits)
        if rules.byte_of is not None:
            possible = without_broken(
                rules.byte_of, draws.ids, position, possible
            )
        if padded is not None:
            of_prefix = prefix_tokens(padded, position)
            possible = begun(rules, of_prefix, logits, possible)
        tokens = _draw(possible, uniforms[:, position], sampling, rules.eos_id)
        # As rows: TensorFlow checks the shapes of more axes in every step.
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(tokens, [-1]), tf.reshape(logits, [-1, logits.shape[-1]])
        )
        log_probs = -tf.reshape(losses, tf.shape(draws.is_open))
        written = tf.where(draws.is_open, tokens, rules.pad_id)
        ids = tf.concat([draws.ids, written[:, :, None]], axis=-1)
        log_probs = draws.log_probs + tf.where(draws.is_open, log_probs, 0.0)
        is_open = draws.is_open & (tokens != rules.eos_id)
        is_open &= tf.cast(length, tf.int64) < limits[:, None]
        return length, _Draws(ids, log_probs, is_open), state

    draws = _Draws(
        ids=tf.fill([batch, n_best, 1], tf.constant(rules.bos_id, tf.int64)),
        log_probs=tf.zeros([batch, n_best]),
        is_open=tf.repeat(limits[:, None] > 0, n_best, axis=1),
    )
    shapes = tf.nest.map_structure(lambda tensor: tensor.shape, draws)
    shapes = shapes._replace(ids=shapes.ids[:2].concatenate([None]))
    _, draws, _ = tf.while_loop(
        lambda position, draws, state: tf.reduce_any(draws.is_open),
        advance,
        (tf.constant(0), draws, state),
        shape_invariants=(tf.TensorShape([]), shapes, growing_after(2, state)),
    )
    return _result(rules, limits, draws)


def _uniforms(seeds: tf.Tensor, longest: tf.Tensor, n_best: int) -> tf.Tensor:
    """Draw a number in [0, 1) for each row, position and draw, `(B, L, N)`."""
    # Positions first: their numbers do not depend on how many follow.
    shape = [tf.maximum(longest, 0), n_best]

    def of_row(seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform(
            shape, seed, dtype=tf.float64, alg="philox"
        )

    signature = tf.TensorSpec([None, n_best], tf.float64)
    # One row more, because a stack of no rows would not know its shape.
    seeds = tf.pad(seeds, [[0, 1], [0, 0]])
    return tf.map_fn(of_row, seeds, fn_output_signature=signature)[:-1]


def _draw(
    logits: tf.Tensor, uniforms: tf.Tensor, sampling: Sampling, eos_id: int
) -> tf.Tensor:
    """Draw from what temperature, `top_k` and `top_p` leave of the logits."""
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    # So that all weights are 0, not NaN, where nothing may be drawn.
    largest = tf.where(largest == NONE, 0.0, largest)
    scaled, tokens = (logits - largest) / sampling.temperature, None
    if sampling.top_k or sampling.top_p < 1:
        size = logits.shape[-1]
        scaled, tokens = top_k(scaled, min(sampling.top_k or size, size))
    # Sums over a whole vocabulary need float64.
    weights = tf.cast(tf.exp(scaled), tf.float64)
    if sampling.top_p < 1:
        # The smallest set that reaches the share `top_p`: a token is in it if
        # the tokens before it fall short of the share.
        before = tf.cumsum(weights, axis=-1, exclusive=True)
        total = tf.reduce_sum(weights, axis=-1, keepdims=True)
        weights = tf.where(before < sampling.top_p * total, weights, 0.0)
    # The token where the running sum passes the random number.
    sums = tf.cumsum(weights, axis=-1)
    total = sums[..., -1:]
    numbers = uniforms[..., None] * total
    place = tf.searchsorted(sums, numbers, "right", tf.int64)
    # A product rounded up to the total would go past the end.
    place = tf.minimum(place, tf.searchsorted(sums, total, "left", tf.int64))
    if tokens is not None:
        place = tf.gather(tokens, place, batch_dims=2)
    is_possible = tf.reduce_max(logits, axis=-1) > NONE
    return tf.where(is_possible, place[..., 0], eos_id)


def _result(rules: Rules, limits: tf.Tensor, draws: _Draws) -> BeamResult:
    """Score the draws and sort them."""
    ids = tf.cast(draws.ids[:, :, 1:], tf.int32)
    lengths = tf.reduce_sum(tf.cast(ids != rules.pad_id, tf.int32), axis=-1)
    scores = draws.log_probs / length_normaliser(
        lengths, rules.search.length_penalty
    )
    # An empty sentence has one hypothesis; NaN logits leave none.
    exists = (limits[:, None] > 0) | (tf.range(tf.shape(scores)[1]) == 0)
    scores = tf.where(exists & (scores > NONE), scores, NONE)
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    parts = ids, scores, lengths
    return BeamResult(*(tf.gather(x, order, batch_dims=1) for x in parts))
