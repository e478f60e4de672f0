"""The best next tokens of all beams, against a sort of every candidate."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from simple_search import BOS, EOS, PAD, log_softmax
from small_models import close

from keras_transformer.config import Search
from keras_transformer.decoding.candidates import Rules, continuations, top_k

BATCH = 3
NO_PREFIX = np.zeros([BATCH, 0], "int64")


def rules_of(banned_ids=(), eos_id=EOS, **settings):
    return Rules(Search(**settings), banned_ids, eos_id=eos_id)


def inputs(rules, size, seed, written=5):
    """Ids, log-probabilities and logits; the last beam of one is not live."""
    draw = np.random.default_rng(seed)
    shape = (BATCH, rules.search.beam_size)
    ids = draw.integers(3, size, (*shape, 1 + written))
    log_probs = -np.sort(draw.gamma(2.0, 2.0, shape))
    if rules.search.beam_size > 1:
        log_probs[1, -1] = -np.inf
    logits = draw.normal(0, 2.0, (*shape, size))
    return ids, log_probs.astype("float32"), logits.astype("float32")


def every_candidate(rules, position, log_probs, logits):
    """All `(B, W, V)` scores, -inf for what the rules forbid."""
    scores = np.array([[log_softmax(row) for row in rows] for rows in logits])
    # A token that begins and ends a target may come.
    begins = [] if rules.eos_id == BOS else [BOS]
    scores[:, :, [PAD, *begins, *rules.banned_ids]] = -np.inf
    if position + 1 < rules.search.min_length:
        scores[:, :, rules.eos_id] = -np.inf
    return scores + log_probs[:, :, None].astype("float64")


def find(rules, position, ids, log_probs, logits, prefix=NO_PREFIX):
    """Scores, parents and tokens of the best continuations."""
    inputs = map(tf.constant, (position, prefix, ids, log_probs, logits))
    return [part.numpy() for part in continuations(rules, *inputs)]


def check(rules, position, ids, log_probs, logits):
    """Compare with the best of all candidates."""
    found, parents, tokens = find(rules, position, ids, log_probs, logits)
    scores = every_candidate(rules, position, log_probs, logits)
    count = rules.num_candidates
    assert found.shape == parents.shape == tokens.shape == (BATCH, count)
    for sentence in range(BATCH):
        best = np.sort(scores[sentence].ravel())[::-1][:count]
        close(found[sentence], best, 1e-5)
        live = found[sentence] > -np.inf
        pairs = parents[sentence][live], tokens[sentence][live]
        close(scores[sentence][pairs], best[live], 1e-5)
        assert len(set(zip(*pairs, strict=True))) == live.sum()


# Sizes with a wide chunk, with narrow ones, and prime ones that have none.
@given(
    size=st.sampled_from([11, 97, 14 * 71, 16 * 251]),
    beams=st.sampled_from([1, 2, 3, 5]),
    banned=st.lists(st.integers(3, 10), max_size=7),
    min_length=st.sampled_from([0, 3, 9]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60)
def test_the_best_candidates_are_found(size, beams, banned, min_length, seed):
    rules = rules_of(
        beam_size=beams, banned_ids=tuple(banned), min_length=min_length
    )
    check(rules, 5, *inputs(rules, size, seed))


@pytest.mark.parametrize("far", [(), (1_003,), tuple(range(500, 530))])
@pytest.mark.parametrize("eos_id", [2, 997])
def test_what_is_forbidden_lies_in_any_chunk(far, eos_id):
    rules = rules_of(beam_size=3, banned_ids=far, min_length=7, eos_id=eos_id)
    ids, log_probs, logits = inputs(rules, 16 * 67, seed=19)
    logits[:, :, [PAD, BOS, eos_id, *far]] += 15.0  # They would be the best.
    check(rules, 5, ids, log_probs, logits)
    check(rules, 6, ids, log_probs, logits)  # EOS may come now.


# Few different values make many ties; sizes with large and small divisors.
@given(
    size=st.sampled_from([7, 97, 1000, 16 * 251]),
    k=st.integers(1, 7),
    seed=st.integers(0, 10_000),
    levels=st.sampled_from([2, 2_000, 1_000_000]),
)
@settings(max_examples=60)
def test_top_k_is_that_of_tensorflow(size, k, seed, levels):
    rows = np.random.default_rng(seed).integers(0, levels, (2, 3, size))
    rows = tf.constant(rows, tf.float32)

    values, indices = top_k(rows, k)

    expected_values, expected_indices = tf.math.top_k(rows, k)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(indices, expected_indices)
