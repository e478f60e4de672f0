"""Beam search over any step function (section 6.1).

The search knows ids and scores, never a model: `step` says which token may
come next, the search decides which hypotheses to follow.

Inside, whatever has an axis is int64: TensorFlow computes int32 in host memory
where there is a GPU, so that int32 ids would come and go at every step. Of
scalars, such as the position, the host has use anyway.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, C candidates of
a step, P prefix, t tokens written so far, L tokens of the longest hypothesis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer import config
from keras_transformer.decoding.continuations import (
    NONE,
    Rules,
    continuations,
    padded_prefix,
)
from keras_transformer.decoding.options import SearchOptions

Step = Callable[..., tuple]

# Steps between two looks for finished sentences.
BLOCK = 16


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


class Shared(NamedTuple):
    """A state of the sentence, which all its beams share.

    Attributes:
        state: Nest of tensors `(B, ...)`. `step` is called with it as a fourth
            argument and returns it as a third result. It is not reordered as
            beams branch; every `BLOCK` steps the rows of finished sentences
            are dropped. An axis after the first that starts with the static
            size 0 may grow.
        extend: Called as `extend(state, steps)` before every block of steps;
            returns the state with room for so many more.
    """

    state: Any
    extend: Callable[[Any, int], Any]


class _Sentences(NamedTuple):
    rows: tf.Tensor  # (B,) int64, their places in the result
    limits: tf.Tensor  # (B,) int64
    prefix: tf.Tensor  # (B, P) int64, its last column PAD; P = 0 for none


class _Beams(NamedTuple):
    live_ids: tf.Tensor  # (B, W, 1 + t) int64, BOS first
    live_log_probs: tf.Tensor  # (B, W) float32, best first
    finished_ids: tf.Tensor  # (B, N, 1 + t) int64, BOS first
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
    banned_ids: Sequence[int] = (),
    no_repeat_ngram: int = 0,
    prefix: tf.Tensor | None = None,
    shared: Shared | None = None,
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
            sentence rather than to a beam is closed over by `step`, or
            `shared`.
        max_lengths: int32 `(B,)`, each sentence's limit in tokens, the end
            token included. With the limit 0 the hypothesis is empty, score 0.
        beam_size: Live hypotheses per sentence, W. At least 1.
        length_penalty: The exponent alpha. At least 0.
        n_best: Hypotheses returned, N. From 1 to `beam_size`.
        min_length: Fewest tokens, the end token included, of a hypothesis
            that ends before the limit.
        banned_ids: Tokens never produced.
        no_repeat_ngram: No row of so many tokens occurs twice in a hypothesis;
            0 for any. The end token occurs once in any case.
        prefix: int32 `(B, P)`, PAD after the last: how each sentence's
            hypotheses begin, without the end token. Taken as it is, whatever
            else is ruled out; it counts in the score and in all lengths, and
            is cut at the limit.
        shared: What `step` keeps for a sentence rather than for a beam. With
            it, sentences that are finished cost nothing in later blocks.
        bos_id: The start token, never produced.
        eos_id: The end token.
        pad_id: Fills the ids, never produced.

    Returns:
        A `BeamResult`. Where fewer than N hypotheses exist, the others are
        empty and score -inf.

    Raises:
        ValueError: If `beam_size`, `length_penalty`, `n_best`, `min_length` or
            `no_repeat_ngram` is out of range.
    """
    # Among others, the early stop rests on a divisor that never falls with the
    # length.
    SearchOptions(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
    )
    rules = Rules(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        min_length=min_length,
        banned_ids=tuple(banned_ids),
        no_repeat_ngram=no_repeat_ngram,
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
    )
    limits = tf.cast(max_lengths, tf.int64)
    if prefix is None:
        prefix = tf.zeros([tf.size(limits), 0], tf.int64)
    else:
        prefix = padded_prefix(prefix, pad_id)
    sentences = _Sentences(tf.range(tf.size(limits, tf.int64)), limits, prefix)
    beams = _first_beams(rules, limits)
    if shared is None:
        _, beams, _, _ = _run(
            step, rules, sentences, (tf.constant(0), beams, state, ())
        )
    else:
        beams = _run_in_blocks(step, rules, sentences, beams, state, shared)
    # (B, N, L), without BOS.
    ids = tf.cast(beams.finished_ids[:, :, 1:], tf.int32)
    lengths = tf.reduce_sum(tf.cast(ids != pad_id, tf.int32), axis=-1)
    return BeamResult(ids, beams.finished_scores, lengths)


def length_normaliser(length: tf.Tensor, length_penalty: float) -> tf.Tensor:
    """The divisor ((5 + L) / 6)^alpha of Wu et al. (2016), equation 14.

    Args:
        length: Integer tensor of any shape, tokens with the end token.
        length_penalty: The exponent alpha. At least 0.

    Returns:
        A float32 tensor of the shape of `length`.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def _first_beams(rules: Rules, limits: tf.Tensor) -> _Beams:
    """One live beam, or with the limit 0 one finished empty hypothesis."""
    may_write = limits[:, None] > 0  # (B, 1)
    others = tf.fill([tf.size(limits), rules.beam_size - 1], NONE)
    live = tf.concat([tf.where(may_write, 0.0, NONE), others], axis=1)
    finished = tf.concat([tf.where(may_write, NONE, 0.0), others], axis=1)
    finished = finished[:, : rules.n_best]
    bos_id = tf.constant(rules.bos_id, tf.int64)
    return _Beams(
        live_ids=tf.fill(tf.shape(live[..., None]), bos_id),
        live_log_probs=live,
        finished_ids=tf.fill(tf.shape(finished[..., None]), bos_id),
        finished_scores=finished,
    )


def _is_open(beams: _Beams) -> tf.Tensor:
    """Whether a sentence still has a live beam, bool `(B,)`."""
    return beams.live_log_probs[:, 0] > NONE


def _run_in_blocks(
    step: Step,
    rules: Rules,
    sentences: _Sentences,
    beams: _Beams,
    state: Any,
    shared: Shared,
) -> _Beams:
    """Search to the end; returns the finished hypotheses of all sentences."""

    def run_block(
        position: tf.Tensor,
        done: _Beams,
        sentences: _Sentences,
        beams: _Beams,
        state: Any,
        memory: Any,
    ) -> tuple[tf.Tensor, _Beams, _Sentences, _Beams, Any, Any]:
        sentences, beams, state, memory = _keep_open(
            sentences, beams, state, memory
        )
        memory = shared.extend(memory, BLOCK)
        position, beams, state, memory = _run(
            step, rules, sentences, (position, beams, state, memory), BLOCK
        )
        done = _record(rules, done, sentences, beams, position)
        return position, done, sentences, beams, state, memory

    start = (tf.constant(0), beams, sentences, beams, state, shared.state)
    _, done, *_ = tf.while_loop(
        lambda position, done, sentences, beams, *_: tf.reduce_any(
            _is_open(beams)
        ),
        run_block,
        start,
        shape_invariants=_shape_invariants(start, any_batch=True),
    )
    return done


def _keep_open(
    sentences: _Sentences, beams: _Beams, state: Any, memory: Any
) -> tuple[_Sentences, _Beams, Any, Any]:
    """Without the sentences that are finished."""
    everything = (sentences, beams, state, memory)
    is_open = _is_open(beams)
    rows = tf.where(is_open)[:, 0]
    kept = tf.cond(
        tf.reduce_all(is_open),
        lambda: tf.nest.flatten(everything),
        lambda: [tf.gather(t, rows) for t in tf.nest.flatten(everything)],
    )
    return tf.nest.pack_sequence_as(everything, kept)


def _record(
    rules: Rules,
    done: _Beams,
    sentences: _Sentences,
    beams: _Beams,
    position: tf.Tensor,
) -> _Beams:
    """The results of all sentences, with those of `sentences` renewed."""
    missing = 1 + position - tf.shape(done.finished_ids)[2]
    ids = _padded(done.finished_ids, missing, rules.pad_id)
    rows = sentences.rows[:, None]
    return done._replace(
        finished_ids=tf.tensor_scatter_nd_update(ids, rows, beams.finished_ids),
        finished_scores=tf.tensor_scatter_nd_update(
            done.finished_scores, rows, beams.finished_scores
        ),
    )


def _run(
    step: Step,
    rules: Rules,
    sentences: _Sentences,
    start: tuple,
    steps: int | None = None,
) -> tuple:
    """Search until all sentences are finished, or for `steps` more steps."""
    end = None if steps is None else start[0] + steps

    def goes_on(position: tf.Tensor, beams: _Beams, *_: Any) -> tf.Tensor:
        is_open = tf.reduce_any(_is_open(beams))
        return is_open if end is None else is_open & (position < end)

    def advance(
        position: tf.Tensor, beams: _Beams, state: Any, memory: Any
    ) -> tuple[tf.Tensor, _Beams, Any, Any]:
        newest = tf.cast(beams.live_ids[:, :, -1], tf.int32)
        if steps is None:
            logits, state = step(newest, position, state)
        else:
            logits, state, memory = step(newest, position, state, memory)
        beams, parents = _branch(rules, sentences, position, beams, logits)
        state = tf.nest.map_structure(lambda t: _take(t, parents), state)
        return position + 1, beams, state, memory

    return tf.while_loop(
        goes_on, advance, start, shape_invariants=_shape_invariants(start)
    )


def _shape_invariants(start: Any, any_batch: bool = False) -> Any:
    """Ids grow along their last axis, a state along its empty axes."""

    def growing_after(axes: int, nest: Any) -> Any:
        return tf.nest.map_structure(
            lambda tensor: tensor.shape[:axes].concatenate(
                [size or None for size in tensor.shape[axes:]]
            ),
            nest,
        )

    def without_batch(shape: tf.TensorShape) -> tf.TensorShape:
        return tf.TensorShape([None, *shape[1:]]) if shape.rank else shape

    def of_beams(beams: _Beams) -> _Beams:
        ids = (beams.live_ids.shape, beams.finished_ids.shape)
        live, finished = (shape[:2].concatenate([None]) for shape in ids)
        return _Beams(
            live,
            beams.live_log_probs.shape,
            finished,
            beams.finished_scores.shape,
        )

    position, *beams_and_more, state, memory = start
    invariants = (
        position.shape,
        *(
            of_beams(part)
            if isinstance(part, _Beams)
            else tf.nest.map_structure(lambda t: t.shape, part)
            for part in beams_and_more
        ),
        growing_after(2, state),
        growing_after(1, memory),
    )
    if not any_batch:
        return invariants
    return tf.nest.map_structure(without_batch, invariants)


def _branch(
    rules: Rules,
    sentences: _Sentences,
    position: tf.Tensor,
    beams: _Beams,
    logits: tf.Tensor,
) -> tuple[_Beams, tf.Tensor]:
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
        [_take(beams.live_ids, parents), tokens[:, :, None]], axis=-1
    )  # (B, C, 1 + t)
    at_limit = length >= sentences.limits[:, None]  # (B, 1)
    ended = (tokens == rules.eos_id) | at_limit  # (B, C)

    # Those that ended compete with the finished ones, which come first: an
    # equal score found later does not replace the earlier hypothesis.
    normaliser = length_normaliser(length, rules.length_penalty)
    scores = tf.where(ended, log_probs / normaliser, NONE)
    scores = tf.concat([beams.finished_scores, scores], axis=1)
    finished_ids = _padded(beams.finished_ids, 1, rules.pad_id)
    finished_ids = tf.concat([finished_ids, ids], axis=1)
    finished_scores, best = tf.math.top_k(scores, rules.n_best)
    finished_ids = _take(finished_ids, best)

    # The others live on.
    live, best = tf.math.top_k(
        tf.where(ended, NONE, log_probs), rules.beam_size
    )
    beams = _Beams(
        live_ids=_take(ids, best),
        live_log_probs=_unless_done(
            rules, sentences.limits, live, finished_scores
        ),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
    )
    return beams, _take(parents, best)


def _padded(ids: tf.Tensor, more: int | tf.Tensor, pad_id: int) -> tf.Tensor:
    """`(B, N, t)` to `(B, N, t + more)`; `tf.pad` of int64 knows no GPU."""
    batch, hypotheses, _ = tf.unstack(tf.shape(ids))
    pad = tf.fill([batch, hypotheses, more], tf.constant(pad_id, tf.int64))
    return tf.concat([ids, pad], axis=2)


def _take(tensor: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
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
    bound = live[:, 0] / length_normaliser(limits, rules.length_penalty)
    is_done = finished_scores[:, -1] >= bound
    return tf.where(is_done[:, None], NONE, live)
