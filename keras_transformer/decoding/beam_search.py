"""Beam search over any step function (section 6.1).

The search knows ids and scores, never a model: `step` says which token may
come next, the search decides which hypotheses to follow.

Inside, every integer tensor with an axis is int64: with a GPU, TensorFlow
computes int32 in host memory, so int32 ids would be copied back and forth at
every step. Scalars, such as the position, are needed on the host anyway.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, C candidates of
a step, P prefix, t tokens written so far, L tokens of the longest hypothesis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer import config
from keras_transformer.config import Search, SettingError
from keras_transformer.decoding.candidates import (
    NONE,
    Rules,
    SearchHistory,
    continuations,
    empty_history,
    lengthened,
    padded_prefix,
    take_step,
)

Step = Callable[..., tuple]


class Shared(NamedTuple):
    """A state of the sentence, which all its beams share.

    Attributes:
        state: Nest of tensors `(B, ...)`. `step` takes it as a fourth argument
            and returns it as a third result. It is not reordered as beams
            branch; every few steps the rows of finished sentences are
            dropped. An axis after the first that starts with the static
            size 0 may grow.
        extend: Called as `extend(state, steps)` before every block of steps,
            with an int32 scalar; returns the state with room for that many
            more steps.
    """

    state: Any
    extend: Callable[[Any, tf.Tensor], Any]


class BeamResult(NamedTuple):
    """The hypotheses of every sentence, best first.

    Attributes:
        ids: int32 `(B, N, L)`, PAD after the end token.
        scores: float32 `(B, N)`, length-normalised log-probability in nats.
        lengths: int32 `(B, N)`, tokens including the end token.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor


class Sentences(NamedTuple):
    """The sentences of a search, as it knows them from the start."""

    rows: tf.Tensor  # (B,) int64, their rows in the result
    limits: tf.Tensor  # (B,) int64
    prefix: tf.Tensor  # (B, P) int64, the last one PAD; P = 0 for none


class Beams(NamedTuple):
    """Live and finished hypotheses, and their history if asked for."""

    live_ids: tf.Tensor  # (B, W, 1 + t) int64, BOS first
    live_log_probs: tf.Tensor  # (B, W) float32, best first
    finished_ids: tf.Tensor  # (B, N, 1 + t) int64, BOS first
    finished_scores: tf.Tensor  # (B, N) float32, best first
    num_finished: tf.Tensor  # (B,) int64, counted only for `max_finished`
    history: SearchHistory | tuple[()] = ()


def beam_search(
    step: Step,
    state: Any,
    *,
    max_lengths: tf.Tensor,
    banned_ids: Sequence[int] = (),
    prefix: tf.Tensor | None = None,
    shared: Shared | None = None,
    bos_id: int = config.BOS_ID,
    eos_id: int = config.EOS_ID,
    pad_id: int = config.PAD_ID,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    min_length: int = 0,
    max_finished: int | None = None,
    no_repeat_ngram: int = 0,
) -> BeamResult:
    """Find the best-scored sequences that `step` can write.

    A hypothesis ends with its end token, or without one at the sentence's
    limit; either way its score is its log-probability divided by
    `length_normaliser` of its length. One beam is greedy decoding. The search
    works eagerly and in a `tf.function`, which needs no new trace for a new
    batch shape.

    Args:
        step: Called as `step(ids, position, state)` with the newest ids
            int32 `(B, W)` and their position, an int32 scalar that is 0 for
            the start token. Returns the logits `(B, W, V)` of the next token,
            of any float dtype, and the new state. V is static, or a multiple
            of `candidates.CHUNK` and at least twice that.
        state: Nest of tensors `(B, W, ...)`, reordered along W as beams
            branch. An axis after these two that starts with the static size
            0, such as the time axis of a cache, may grow. What belongs to the
            sentence rather than to a beam goes into `shared` or a closure of
            `step`.
        max_lengths: int32 `(B,)`, each sentence's limit in tokens, the end
            token included. With the limit 0 the hypothesis is empty, score 0.
        banned_ids: Tokens never produced.
        prefix: int32 `(B, P)`, PAD after the last: how each sentence's
            hypotheses begin, without the end token. The search writes it as
            it is, even what other rules forbid; it counts in the score and in
            all lengths, and is cut at the limit.
        shared: What `step` keeps for a sentence rather than for a beam. With
            it, sentences that are finished cost nothing in later blocks.
        bos_id: The start token, never produced.
        eos_id: The end token.
        pad_id: Fills the ids, never produced.
        beam_size: Live hypotheses per sentence, W; 1 is greedy.
        length_penalty: The exponent alpha of `length_normaliser`.
        n_best: Hypotheses to return, N, at most `beam_size`.
        min_length: Fewest tokens, the end token included, unless the limit is
            lower.
        max_finished: Stop once so many hypotheses have ended among the best
            `beam_size` of their step; search until the result is proven if
            not given.
        no_repeat_ngram: Never write so many tokens in a row twice; 0 allows
            repeats.

    Returns:
        A `BeamResult`. Where fewer than N hypotheses exist, the others are
        empty and score -inf.

    Raises:
        SettingError: If a setting or the shape of state or logits is wrong, or
            logits are NaN at the first of eager steps.
    """
    search = Search(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        min_length=min_length,
        max_finished=max_finished,
        no_repeat_ngram=no_repeat_ngram,
    )
    rules = Rules(search, tuple(banned_ids), bos_id, eos_id, pad_id)
    limits = tf.convert_to_tensor(max_lengths).shape
    if limits.rank not in (1, None):
        expected = "a limit for each sentence, int32 (B,)"
        raise SettingError("max_lengths", expected, max_lengths)
    sizes = [limits[0], beam_size]
    for part in tf.nest.flatten(state):  # NumPy's, too.
        shape = None if part is None else tf.convert_to_tensor(part).shape
        if not shape or not shape[:2].is_compatible_with(sizes):
            expected = f"tensors ({sizes[0] or 'B'}, {beam_size}, ...), or () "
            expected += "for no state; see `shared` for others"
            raise SettingError("state", expected, shape and shape.as_list())
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    if prefix is not None:
        shape = tf.convert_to_tensor(prefix).shape
        if not shape.is_compatible_with([limits[0], None]):
            expected = f"ids ({sizes[0] or 'B'}, P)"
            raise SettingError("prefix", expected, shape.as_list())
    if pad_id == eos_id:
        expected = "another id than `eos_id`, such as -1"
        raise SettingError("pad_id", expected, pad_id)
    return search_by(rules, step, state, max_lengths, prefix, shared)[0]


def search_by(
    rules: Rules,
    step: Step,
    state: Any,
    max_lengths: tf.Tensor,
    prefix: tf.Tensor | None = None,
    shared: Shared | None = None,
    with_history: bool = False,
) -> tuple[BeamResult, Any]:
    """Search as `beam_search` does, and record what it weighed if asked to.

    With `shared`, a history is that of a single sentence, statically one.

    Returns:
        The result of `beam_search`, and a `SearchHistory` or ().
    """
    limits = tf.cast(max_lengths, tf.int64)
    batch = tf.size(limits)
    if prefix is None:
        prefix = tf.zeros([batch, 0], tf.int64)
    else:
        prefix = padded_prefix(prefix, rules.pad_id)
    history: Any = ()
    if with_history:
        sizes = rules.num_candidates, rules.search.beam_size
        history = empty_history(batch, *sizes)
    sentences = Sentences(tf.range(tf.size(limits, tf.int64)), limits, prefix)
    beams = _first_beams(rules, limits, history)
    if shared is None:
        start = (tf.constant(0), beams, state, ())
        beams = _run(step, rules, sentences, start)[1]
    else:
        beams = _run_in_blocks(step, rules, sentences, beams, state, shared)
    # (B, N, L), without BOS.
    ids = tf.cast(beams.finished_ids[:, :, 1:], tf.int32)
    lengths = tf.reduce_sum(tf.cast(ids != rules.pad_id, tf.int32), axis=-1)
    return BeamResult(ids, beams.finished_scores, lengths), beams.history


# Steps between two looks for finished sentences: two, or an eighth of the
# tokens written if that is more, since every look copies the caches. A single
# sentence needs no look, only room in its caches: four steps, or a quarter.
_STEPS = (2, 8)
_STEPS_ALONE = (4, 4)


def _run_in_blocks(
    step: Step,
    rules: Rules,
    sentences: Sentences,
    beams: Beams,
    state: Any,
    shared: Shared,
) -> Beams:
    """Search until all sentences are finished; return the hypotheses of all."""

    def run_block(
        position: tf.Tensor,
        done: Beams,
        sentences: Sentences,
        beams: Beams,
        state: Any,
        memory: Any,
    ) -> tuple[tf.Tensor, Beams, Sentences, Beams, Any, Any]:
        if not is_alone:
            sentences, beams, state, memory = _keep_open(
                sentences, beams, state, memory
            )
        steps = tf.maximum(fewest, position // part)
        memory = shared.extend(memory, steps)
        position, beams, state, (memory,) = _run(
            step, rules, sentences, (position, beams, state, (memory,)), steps
        )
        done = _record(rules, done, sentences, beams, position)
        return position, done, sentences, beams, state, memory

    is_alone = sentences.limits.shape[0] == 1
    fewest, part = _STEPS_ALONE if is_alone else _STEPS
    start = (tf.constant(0), beams, sentences, beams, state, shared.state)
    _, done, *_ = tf.while_loop(
        lambda position, done, sentences, beams, *_: tf.reduce_any(
            _is_open(beams)
        ),
        run_block,
        start,
        shape_invariants=_shape_invariants(start, any_batch=not is_alone),
    )
    return done


def _keep_open(
    sentences: Sentences, beams: Beams, state: Any, memory: Any
) -> tuple[Sentences, Beams, Any, Any]:
    """Drop the sentences that are finished."""
    everything = (sentences, beams, state, memory)
    stay = _is_open(beams)
    rows = tf.where(stay)[:, 0]
    kept = tf.cond(
        tf.reduce_all(stay),
        lambda: tf.nest.flatten(everything),
        lambda: [tf.gather(t, rows) for t in tf.nest.flatten(everything)],
    )
    return tf.nest.pack_sequence_as(everything, kept)


def _record(
    rules: Rules,
    done: Beams,
    sentences: Sentences,
    beams: Beams,
    position: tf.Tensor,
) -> Beams:
    """Write the results of `sentences` into those of all."""
    missing = 1 + position - tf.shape(done.finished_ids)[2]
    ids = _padded(done.finished_ids, missing, rules.pad_id)
    rows = sentences.rows[:, None]
    return done._replace(
        history=beams.history,  # Of the only sentence.
        finished_ids=tf.tensor_scatter_nd_update(ids, rows, beams.finished_ids),
        finished_scores=tf.tensor_scatter_nd_update(
            done.finished_scores, rows, beams.finished_scores
        ),
    )


def _run(
    step: Step,
    rules: Rules,
    sentences: Sentences,
    start: tuple,
    steps: tf.Tensor | None = None,
) -> tuple:
    """Search until all sentences are finished, or for `steps` more steps."""
    end = None if steps is None else start[0] + steps

    def goes_on(position: tf.Tensor, beams: Beams, *_: Any) -> tf.Tensor:
        any_open = tf.reduce_any(_is_open(beams))
        return any_open if end is None else any_open & (position < end)

    def advance(
        position: tf.Tensor, beams: Beams, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Beams, Any, tuple]:
        newest = tf.cast(beams.live_ids[:, :, -1], tf.int32)
        logits, state, *memory = take_step(
            step, rules, newest, position, state, *memory
        )
        beams, parents = _branch(rules, sentences, position, beams, logits)
        state = tf.nest.map_structure(lambda t: _take(t, parents), state)
        return position + 1, beams, state, tuple(memory)

    return tf.while_loop(
        goes_on, advance, start, shape_invariants=_shape_invariants(start)
    )


def growing_after(axes: int, nest: Any) -> Any:
    """Return shapes in which the empty axes after the first `axes` may grow."""
    return tf.nest.map_structure(
        lambda tensor: tensor.shape[:axes].concatenate(
            [size or None for size in tensor.shape[axes:]]
        ),
        nest,
    )


def _shape_invariants(start: Any, any_batch: bool = False) -> Any:
    """Let ids grow along their last axis, a state along its empty axes."""

    def without_batch(shape: tf.TensorShape) -> tf.TensorShape:
        return tf.TensorShape([None, *shape[1:]]) if shape.rank else shape

    def of_part(part: Beams | Sentences) -> Any:
        shapes = tf.nest.map_structure(lambda t: t.shape, part)
        if isinstance(part, Sentences):
            return shapes
        return shapes._replace(
            live_ids=shapes.live_ids[:2].concatenate([None]),
            finished_ids=shapes.finished_ids[:2].concatenate([None]),
            history=growing_after(1, part.history),
        )

    position, *beams_and_more, state, memory = start
    invariants = (
        position.shape,
        *map(of_part, beams_and_more),
        growing_after(2, state),
        growing_after(1, memory),
    )
    if not any_batch:
        return invariants
    return tf.nest.map_structure(without_batch, invariants)


def length_normaliser(length: tf.Tensor, length_penalty: float) -> tf.Tensor:
    """Compute ((5 + L) / 6)^alpha of Wu et al. (2016), equation 14.

    Args:
        length: Integer tensor of any shape, tokens including the end token.
        length_penalty: The exponent alpha. At least 0.

    Returns:
        A float32 tensor of the shape of `length`.
    """
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty


def _first_beams(
    rules: Rules, limits: tf.Tensor, history: SearchHistory | tuple[()]
) -> Beams:
    """Begin with one live beam, or with an empty finished one at limit 0."""
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
        num_finished=tf.zeros_like(limits),
        history=history,
    )


def _is_open(beams: Beams) -> tf.Tensor:
    """Return whether a sentence still has a live beam, bool `(B,)`."""
    return beams.live_log_probs[:, 0] > NONE


def _branch(
    rules: Rules,
    sentences: Sentences,
    position: tf.Tensor,
    beams: Beams,
    logits: tf.Tensor,
) -> tuple[Beams, tf.Tensor]:
    """Write one token: t grows by one.

    Returns:
        The beams, and the parent of each live beam, int64 `(B, W)`.
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

    # Hypotheses that ended compete with the finished ones, which come first:
    # an equal score found later does not replace the earlier hypothesis.
    normaliser = length_normaliser(length, rules.search.length_penalty)
    scores = tf.where(ended, log_probs / normaliser, NONE)
    scores = tf.concat([beams.finished_scores, scores], axis=1)
    finished_ids = _padded(beams.finished_ids, 1, rules.pad_id)
    finished_ids = tf.concat([finished_ids, ids], axis=1)
    finished_scores, best = tf.math.top_k(scores, rules.search.n_best)
    finished_ids = _take(finished_ids, best)

    # The others live on.
    still_open = tf.where(ended, NONE, log_probs)
    live, best = tf.math.top_k(still_open, rules.search.beam_size)
    history = beams.history
    if history:
        survivors = tf.where(live > NONE, best, -1)
        of_step = log_probs, parents, tokens, ended, survivors
        history = lengthened(history, *of_step)
    num_finished = beams.num_finished
    bound = live[:, 0] / length_normaliser(
        sentences.limits, rules.search.length_penalty
    )
    # Log-probabilities only fall and the normaliser is largest at the limit,
    # so no descendant of the best live beam scores above this bound.
    is_done = finished_scores[:, -1] >= bound
    if rules.search.max_finished is not None:
        enough = max(rules.search.max_finished, rules.search.n_best)
        among_best = (ended & (log_probs > NONE))[:, : rules.search.beam_size]
        num_finished += tf.math.count_nonzero(among_best, axis=1)
        is_done |= num_finished >= enough
    beams = Beams(
        live_ids=_take(ids, best),
        live_log_probs=tf.where(is_done[:, None], NONE, live),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        num_finished=num_finished,
        history=history,
    )
    return beams, _take(parents, best)


def _padded(ids: tf.Tensor, more: int | tf.Tensor, pad_id: int) -> tf.Tensor:
    """Pad `(B, N, t)` to `(B, N, t + more)`; GPUs have no int64 `tf.pad`."""
    batch, hypotheses, _ = tf.unstack(tf.shape(ids))
    pad = tf.fill([batch, hypotheses, more], tf.constant(pad_id, tf.int64))
    return tf.concat([ids, pad], axis=2)


def _take(tensor: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Pick `places` `(B, C)` along the second axis of `(B, W, ...)`."""
    return tf.gather(tensor, places, axis=1, batch_dims=1)
