"""The loop of a search: step after step, until every sentence is finished.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, t tokens written
so far.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.beams import (
    Beams,
    Sentences,
    branch,
    is_open,
    padded,
    take,
)
from keras_transformer.decoding.continuations import Rules
from keras_transformer.decoding.search_history import with_results

Step = Callable[..., tuple]

# Steps between two looks for finished sentences: so many, or a quarter of what
# is written where that is more, for the caches are copied at every look.
_FEWEST_STEPS = 4
_QUARTER = 4


class Shared(NamedTuple):
    """A state of the sentence, which all its beams share.

    Attributes:
        state: Nest of tensors `(B, ...)`. `step` is called with it as a fourth
            argument and returns it as a third result. It is not reordered as
            beams branch; every few steps the rows of finished sentences are
            dropped. An axis after the first that starts with the static
            size 0 may grow.
        extend: Called as `extend(state, steps)` before every block of steps,
            an int32 scalar; returns the state with room for so many more.
    """

    state: Any
    extend: Callable[[Any, tf.Tensor], Any]


def run_to_end(
    step: Step,
    rules: Rules,
    sentences: Sentences,
    beams: Beams,
    state: Any,
    shared: Shared | None,
) -> Beams:
    """Search until all sentences are finished.

    Args:
        step: As in `beam_search`, like `state` and `shared`.
        rules: What a hypothesis may look like.
        sentences: Of the whole batch.
        beams: As from `first_beams`.
        state: Of the beams.
        shared: Of the sentences.

    Returns:
        The finished hypotheses of all sentences.
    """
    if shared is None:
        start = (tf.constant(0), beams, state, ())
        return _run(step, rules, sentences, start)[1]
    return _run_in_blocks(step, rules, sentences, beams, state, shared)


def _run_in_blocks(
    step: Step,
    rules: Rules,
    sentences: Sentences,
    beams: Beams,
    state: Any,
    shared: Shared,
) -> Beams:
    """Search to the end; returns the finished hypotheses of all sentences."""

    def run_block(
        position: tf.Tensor,
        done: Beams,
        sentences: Sentences,
        beams: Beams,
        state: Any,
        memory: Any,
    ) -> tuple[tf.Tensor, Beams, Sentences, Beams, Any, Any]:
        sentences, beams, state, memory = _keep_open(
            sentences, beams, state, memory
        )
        steps = tf.maximum(_FEWEST_STEPS, position // _QUARTER)
        memory = shared.extend(memory, steps)
        position, beams, state, memory = _run(
            step, rules, sentences, (position, beams, state, memory), steps
        )
        done = _record(rules, done, sentences, beams, position)
        return position, done, sentences, beams, state, memory

    start = (tf.constant(0), beams, sentences, beams, state, shared.state)
    _, done, *_ = tf.while_loop(
        lambda position, done, sentences, beams, *_: tf.reduce_any(
            is_open(beams)
        ),
        run_block,
        start,
        shape_invariants=_shape_invariants(start, any_batch=True),
    )
    return done


def _keep_open(
    sentences: Sentences, beams: Beams, state: Any, memory: Any
) -> tuple[Sentences, Beams, Any, Any]:
    """Without the sentences that are finished."""
    everything = (sentences, beams, state, memory)
    stay = is_open(beams)
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
    """The results of all sentences, with those of `sentences` renewed."""
    missing = 1 + position - tf.shape(done.finished_ids)[2]
    ids = padded(done.finished_ids, missing, rules.pad_id)
    rows = sentences.rows[:, None]
    if done.history and beams.history:
        done = done._replace(
            history=with_results(done.history, rows, beams.history)
        )
    return done._replace(
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
        any_open = tf.reduce_any(is_open(beams))
        return any_open if end is None else any_open & (position < end)

    def advance(
        position: tf.Tensor, beams: Beams, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Beams, Any, Any]:
        newest = tf.cast(beams.live_ids[:, :, -1], tf.int32)
        if steps is None:
            logits, state = step(newest, position, state)
        else:
            logits, state, memory = step(newest, position, state, memory)
        beams, parents = branch(rules, sentences, position, beams, logits)
        state = tf.nest.map_structure(lambda t: take(t, parents), state)
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

    def of_beams(beams: Beams) -> Beams:
        ids = (beams.live_ids.shape, beams.finished_ids.shape)
        live, finished = (shape[:2].concatenate([None]) for shape in ids)
        return Beams(
            live,
            beams.live_log_probs.shape,
            finished,
            beams.finished_scores.shape,
            growing_after(1, beams.history),
        )

    position, *beams_and_more, state, memory = start
    invariants = (
        position.shape,
        *(
            of_beams(part)
            if isinstance(part, Beams)
            else tf.nest.map_structure(lambda t: t.shape, part)
            for part in beams_and_more
        ),
        growing_after(2, state),
        growing_after(1, memory),
    )
    if not any_batch:
        return invariants
    return tf.nest.map_structure(without_batch, invariants)
