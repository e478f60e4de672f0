"""Beam search over any step function (section 6.1).

The search knows ids and scores, never a model: `step` says which token may
come next, the search decides which hypotheses to follow.

Inside, whatever has an axis is int64: TensorFlow computes int32 in host memory
where there is a GPU, so that int32 ids would come and go at every step. Of
scalars, such as the position, the host has use anyway.

Axes: B batch, W beams, N hypotheses returned, V vocabulary, C candidates of
a step, P prefix, t tokens written so far, L tokens of the longest hypothesis.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer import config
from keras_transformer.config import Search
from keras_transformer.decoding.beams import Sentences, first_beams
from keras_transformer.decoding.continuations import Rules, padded_prefix
from keras_transformer.decoding.search_history import (
    SearchHistory,
    empty_history,
)
from keras_transformer.decoding.search_loop import Shared, Step, run_to_end
from keras_transformer.settings import with_settings

# The settings that a search over ids knows.
SEARCHED = [
    field
    for field in dataclasses.fields(Search)
    if field.name in ("beam_size", "length_penalty", "n_best", "min_length")
    or field.name == "no_repeat_ngram"
]


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


@with_settings(SEARCHED)
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
    **settings: Any,
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
        banned_ids: Tokens never produced.
        prefix: int32 `(B, P)`, PAD after the last: how each sentence's
            hypotheses begin, without the end token. Taken as it is, whatever
            else is ruled out; it counts in the score and in all lengths, and
            is cut at the limit.
        shared: What `step` keeps for a sentence rather than for a beam. With
            it, sentences that are finished cost nothing in later blocks.
        bos_id: The start token, never produced.
        eos_id: The end token.
        pad_id: Fills the ids, never produced.
        **settings: Of `Search`.

    Returns:
        A `BeamResult`. Where fewer than N hypotheses exist, the others are
        empty and score -inf.

    Raises:
        SettingError: If a setting makes no sense.
    """
    rules = Rules(Search(**settings), tuple(banned_ids), bos_id, eos_id, pad_id)
    result, _ = _search(step, state, rules, max_lengths, prefix, shared)
    return result


def beam_search_with_history(
    step: Step,
    state: Any,
    *,
    max_lengths: tf.Tensor,
    prefix: tf.Tensor | None = None,
    shared: Shared | None = None,
    banned_ids: Sequence[int] = (),
    **settings: Any,
) -> tuple[BeamResult, SearchHistory]:
    """Search as `beam_search` does, and tell what was weighed on the way.

    Args:
        step: As in `beam_search`, like all others.
        state: Nest of tensors `(B, W, ...)`.
        max_lengths: int32 `(B,)`.
        prefix: int32 `(B, P)`.
        shared: What `step` keeps for a sentence.
        banned_ids: Tokens never produced.
        **settings: Of `Search`.

    Returns:
        The result of `beam_search`, bit for bit, and the history of its steps.

    Raises:
        SettingError: As in `beam_search`.
    """
    rules = Rules(Search(**settings), tuple(banned_ids))
    return _search(
        *(step, state, rules, max_lengths, prefix, shared), with_history=True
    )


def _search(
    step: Step,
    state: Any,
    rules: Rules,
    max_lengths: tf.Tensor,
    prefix: tf.Tensor | None,
    shared: Shared | None,
    with_history: bool = False,
) -> tuple[BeamResult, Any]:
    """The result, and the history where there is one."""
    limits = tf.cast(max_lengths, tf.int64)
    batch = tf.size(limits)
    if prefix is None:
        prefix = tf.zeros([batch, 0], tf.int64)
    else:
        prefix = padded_prefix(prefix, rules.pad_id)
    history = (
        empty_history(batch, rules.num_candidates, rules.search.beam_size)
        if with_history
        else ()
    )
    sentences = Sentences(tf.range(tf.size(limits, tf.int64)), limits, prefix)
    beams = run_to_end(
        *(step, rules, sentences, first_beams(rules, limits, history)),
        *(state, shared),
    )
    # (B, N, L), without BOS.
    ids = tf.cast(beams.finished_ids[:, :, 1:], tf.int32)
    lengths = tf.reduce_sum(tf.cast(ids != rules.pad_id, tf.int32), axis=-1)
    return BeamResult(ids, beams.finished_scores, lengths), beams.history
