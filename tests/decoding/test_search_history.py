"""The history of a search, against a search by definition."""

import numpy as np
import pytest
import tensorflow as tf
from model_searches import graph_of
from simple_search import EOS, followers, random_markov, with_unequal_ends
from small_models import close, model_of

from keras_transformer.config import Search
from keras_transformer.decoding.beam_search import beam_search, search_by
from keras_transformer.decoding.candidates import Rules


def beam_search_with_history(step, state, max_lengths, shared=None, **settings):
    return search_by(
        *(Rules(Search(**settings)), step, state),
        max_lengths=max_lengths,
        shared=shared,
        with_history=True,
    )


def steps_by_definition(model, sentence, limit, beam_size):
    """Every step's candidates, best first, and those that live on."""
    live = [((), 0.0)]
    count = 2 * beam_size if beam_size > 1 else 1
    for length in range(1, limit + 1):
        candidates = []
        for prefix, log_prob in live:
            log_probs = model.log_probs(sentence, prefix)
            for token, more in followers(log_probs, prefix):
                candidates.append(((*prefix, token), log_prob + more))
        candidates = sorted(candidates, key=lambda item: -item[1])[:count]
        live = [
            item for item in candidates if item[0][-1] != EOS and length < limit
        ][:beam_size]
        yield candidates, live


@pytest.mark.parametrize("beam_size", [1, 2, 3, 5])
def test_every_step_weighs_and_keeps_what_the_definition_says(beam_size):
    batch = 11
    limits = [1 + sentence % 7 for sentence in range(batch)]
    model = with_unequal_ends(random_markov(beam_size, batch, vocab=17))

    _, history = beam_search_with_history(
        model.step, (), max_lengths=tf.constant(limits), beam_size=beam_size
    )

    log_probs, parents, tokens, ended, survivors = (
        np.asarray(part) for part in history
    )
    stopped_early = 0
    for sentence, limit in enumerate(limits):
        prefixes = [()]
        steps = steps_by_definition(model, sentence, limit, beam_size)
        for t, (candidates, live) in enumerate(steps):
            if t == log_probs.shape[1] or np.isinf(log_probs[sentence, t, 0]):
                stopped_early += bool(candidates)
                break
            row, count = (sentence, t), len(candidates)
            pairs = zip(parents[row][:count], tokens[row][:count], strict=True)
            found = [(*prefixes[parent], int(token)) for parent, token in pairs]
            expected = [log_prob for _, log_prob in candidates]
            assert found == [ids for ids, _ in candidates]
            close(log_probs[row][:count], expected, 1e-5)
            assert np.all(np.isinf(log_probs[row][count:]))
            assert ended[row][:count].tolist() == [
                ids[-1] == EOS or t + 1 == limit for ids in found
            ]
            prefixes = [found[k] for k in survivors[row] if k >= 0]
            assert prefixes == [ids for ids, _ in live]
    # Otherwise the test would not see what a stop leaves. One beam only ends.
    assert stopped_early or beam_size == 1


def test_the_result_is_the_same_bit_for_bit_and_outlives_the_blocks():
    model = model_of("sinusoidal")
    source = np.array(
        [[5, 7, 9, 11, 3], [6, 3, 0, 0, 0], [8, 22, 4, 3, 0]], "int32"
    )
    limits = np.array([13, 2, 37], "int32")  # 4, 1 and 8 blocks of steps.
    plain, with_history = (
        graph_of(model, 3, search=search, n_best=3, min_length=5)
        for search in (beam_search, beam_search_with_history)
    )

    for row in range(3):
        sentence = source[row : row + 1], limits[row : row + 1]
        result, history = with_history(*sentence)
        for one, other in zip(plain(*sentence), result, strict=True):
            np.testing.assert_array_equal(one, other)
        weighed = np.isfinite(history.log_probs)[0, :, 0].sum()
        assert weighed >= np.asarray(result.lengths).max()
        assert weighed == 2 or row != 1
