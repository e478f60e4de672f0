"""The search with shared, in-place caches against one without caches.

The cache of a restricted model is a ring, or the last few slots.
"""

import numpy as np
import pytest
import tensorflow as tf
from model_searches import (
    LIMITS,
    SOURCE,
    VOCAB,
    graph_of,
    search_with,
    simple,
)
from simple_search import EOS, PAD, as_hypotheses, assert_same
from small_models import make_model

from keras_transformer.config import Sampling, Search
from keras_transformer.decoding.beam_search import Shared, beam_search
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.candidates import Rules
from keras_transformer.decoding.sampling import sample


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def search(model):
    """A graph for batches and lengths of any size."""
    return graph_of(model, 4, n_best=2)


def assert_alike(found, expected):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


# Ends are banned before the 18th token, so that beams have time to branch and
# rings go round.
LONG = dict(min_length=18, length_penalty=1.1)
PREFIX = [[9, 9], [4, 0], [0, 0], [7, 0], [21, 1]]


@pytest.mark.parametrize(
    "restriction, beam_size, options",
    [
        (None, 4, LONG),
        # Rings that the first block of steps fills, the second and the fifth:
        # each has four.
        (5, 4, LONG),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (1, 4, LONG),
                (19, 4, LONG),
                (None, 1, {}),
                (None, 4, {"prefix": PREFIX, "no_repeat_ngram": 2}),
            )
        ),
    ],
)
def test_caches_change_nothing_found(restriction, beam_size, options):
    model = make_model(restriction=restriction)
    options = {**options, "n_best": min(beam_size, 3)}
    expected = simple(model, SOURCE, LIMITS, beam_size, **options)
    run = graph_of(model, beam_size, **options)
    for _ in range(2):  # Nothing written in place is left for the next run.
        assert_alike(run(SOURCE, LIMITS), expected)


def test_nothing_written_in_place_is_left_for_the_next_run(model):
    # A batch of known size is what a constant could be folded from.
    other = np.where(SOURCE == PAD, PAD, SOURCE[::-1, :].max(1)[:, None])
    limits, ids = tf.constant(LIMITS), tf.TensorSpec(SOURCE.shape, tf.int32)
    run = tf.function(
        lambda source: search_with(model, source, limits, 3, n_best=2),
        input_signature=[ids],
        autograph=False,
    )
    first = run(SOURCE)
    run(other)
    for old, new in zip(first, run(SOURCE), strict=True):
        np.testing.assert_array_equal(old, new)
    eager = search_with(model, SOURCE, LIMITS, 3, n_best=2)
    np.testing.assert_array_equal(first.ids, eager.ids)


def test_a_sentence_is_searched_alike_in_any_batch(search):
    together = search(SOURCE, LIMITS)
    for i in range(len(SOURCE)):
        alone = search(SOURCE[i : i + 1], LIMITS[i : i + 1])
        assert_same(as_hypotheses(alone, 0), as_hypotheses(together, i), 1e-4)


def test_finished_sentences_leave_after_a_block():
    sizes = []

    def step(ids, position, state, rows):
        sizes.append((int(position), rows.numpy().tolist()))
        # All end with the fifth token but those that have odd numbers.
        logits = np.zeros([*ids.shape, 7], "float32")
        logits[:, :, EOS] = -9.0
        if position == 4:
            logits[rows.numpy() % 2 == 0, :, EOS] = 30.0
        if position == 13:  # Nothing can win behind it, though it may come.
            logits[:, :, EOS] = 30.0
        return tf.constant(logits), state, rows

    result = beam_search(
        step,
        (),
        max_lengths=tf.fill([5], 20),
        beam_size=2,
        length_penalty=0.0,
        shared=Shared(tf.range(5), lambda rows, steps: rows),
    )

    assert [rows for _, rows in sizes] == 6 * [[0, 1, 2, 3, 4]] + 8 * [[1, 3]]
    assert [position for position, _ in sizes] == list(range(14))
    np.testing.assert_array_equal(result.lengths[:, 0], [5, 14, 5, 14, 5])


def test_draws_are_those_of_whole_prefixes():
    model = make_model(restriction=4)
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
            Rules(Search(sampling=Sampling(), n_best=draws, min_length=8)),
            step,
            state,
            max_lengths=tf.constant([11, 2, 9, 13, 7]),
            seeds=np.arange(10).reshape(5, 2),
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
