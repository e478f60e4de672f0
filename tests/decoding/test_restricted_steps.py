"""Cached steps of a restricted model: a ring, or the last few slots."""

import numpy as np
import pytest
import tensorflow as tf
from model_searches import (
    LIMITS,
    SOURCE,
    VOCAB,
    graph_of,
    make_model,
    simple,
)

from keras_transformer.config import Sampling
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.sampling import sample

# Ends are banned before the 18th token, so that rings go round.
OPTIONS = dict(n_best=3, min_length=18, length_penalty=1.1)


@pytest.fixture(scope="module")
def results():
    """What searches without caches find, by restriction."""
    found = {}

    def of(restriction):
        if restriction not in found:
            found[restriction] = simple(
                make_model(restriction), SOURCE, LIMITS, 4, **OPTIONS
            )
        return found[restriction]

    return of


def assert_alike(found, expected):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


# Rings that the first block of steps fills, the second and the fifth: each has
# four.
@pytest.mark.slow
@pytest.mark.parametrize("restriction", [1, 5, 19])
def test_a_ring_finds_what_the_search_without_caches_finds(
    restriction, results
):
    model = make_model(restriction)
    expected = results(restriction)
    run = graph_of(model, 4, **OPTIONS)
    for _ in range(2):  # Nothing written in place is left for the next run.
        assert_alike(run(SOURCE, LIMITS), expected)


@pytest.mark.slow
def test_a_restriction_changes_what_is_found_unless_it_spans_all(results):
    whole = graph_of(make_model(None), 4, **OPTIONS)(SOURCE, LIMITS)
    wide = graph_of(make_model(41), 4, **OPTIONS)(SOURCE, LIMITS)
    assert_alike(wide, whole)
    assert np.abs(results(19).scores - whole.scores).max() > 0.01


def test_a_ring_keeps_the_slots_of_r_positions():
    steps = CachedSteps(make_model(5), SOURCE, 3)
    state, shared = steps.state, steps.shared.state
    sizes = []
    for position in range(33):
        if position % 4 == 0:  # The second block of steps fills the ring.
            shared = steps.shared.extend(shared, 4)
        ids = tf.fill([5, 3], 7)
        _, state, shared = steps.step(ids, tf.constant(position), state, shared)
        # Each beam is a continuation of itself.
        own = np.sum(state, axis=2)
        np.testing.assert_array_equal(own, min(position + 1, 5))
        sizes.append((state.shape[2], shared["cache"][1][0].shape[2]))
    assert sizes[:4] == [(3, 12), (6, 12), (9, 12), (12, 12)]
    assert sizes[4:] == [(15, 15)] * 29


def test_draws_are_those_of_whole_prefixes():
    model = make_model(4)
    draws = 3
    steps = CachedSteps(model, SOURCE, draws)
    source = np.repeat(SOURCE, draws, axis=0)
    widths = []

    def append(ids, position, cache):
        logits, cache = steps.append(ids, position, cache)
        widths.append(cache[1][1].shape[2])
        return logits, cache

    def whole(ids, position, prefix):
        prefix = tf.concat([prefix, ids[:, :, None]], axis=-1)
        flat = tf.reshape(prefix, [-1, prefix.shape[2]])
        logits = model((source, flat), training=False)[:, -1]
        return tf.reshape(logits, [*ids.shape, VOCAB]), prefix

    found, expected = (
        sample(
            step,
            state,
            max_lengths=tf.constant([11, 2, 9, 13, 7]),
            seeds=np.arange(10).reshape(5, 2),
            sampling=Sampling(),
            n_best=draws,
            min_length=8,
        )
        for step, state in (
            (append, model.empty_cache(5)),
            (whole, tf.zeros([5, draws, 0], tf.int32)),
        )
    )
    assert_alike(found, expected)
    # Three draws of at most four positions.
    assert widths[:5] == [3, 6, 9, 12, 12]
    assert len(widths) == 13
