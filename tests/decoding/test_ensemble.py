"""Searches with several models, against exhaustive search over their mean."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from model_searches import graph_of_model, search_graph
from simple_search import every_hypothesis, log_softmax
from small_models import close, randomise, sentence
from small_models import make_model as random_model

from keras_transformer.config import EOS_ID, Sampling, Search
from keras_transformer.decoding.frozen_weights import Int8Weights
from keras_transformer.decoding.id_model import IdModel

VOCAB = 11
SOURCE = np.array([[5, 7, 9, 3], [6, 3, 0, 0], [10, 4, 3, 0]], "int32")


def make_model(seed=0, **changes):
    return randomise(random_model(vocab_size=VOCAB, **changes), seed)


def unlike_models():
    """Of other depths, widths and heads, one with short-sighted positions."""
    return [
        make_model(1),
        make_model(2, num_layers=1, d_model=14, num_heads=5, value_dim=2),
        make_model(3, restriction=2),
    ]


class MeanOfWholeModels:
    """Predicts after a prefix with no cache, and averages with NumPy."""

    def __init__(self, models):
        self._graphs = [graph_of_model(model) for model in models]

    def log_probs(self, sentence, prefix):
        source = np.array([sentence], "int32")
        target_in = np.array([[2, *prefix]], "int32")
        of_models = [
            log_softmax(graph(source, target_in)[0, -1].numpy())
            for graph in self._graphs
        ]
        return np.log(np.mean(np.exp(of_models), axis=0))


def search(model, source, options, **given):
    return search_graph(model, options, **given)(tf.constant(source))


@pytest.mark.slow
def test_a_wide_beam_finds_what_exhaustive_search_finds():
    models = unlike_models()
    options = Search(beam_size=100, n_best=7, max_length=3, length_penalty=0.7)
    found = search(IdModel(models), SOURCE, options)
    whole = MeanOfWholeModels(models)
    for row, ids in enumerate(SOURCE):
        expected = every_hypothesis(whole, sentence(ids), 3, 0.7)[:7]
        for n, (ids, score) in enumerate(expected):
            of_row = found.ids[row, n].numpy()
            assert tuple(of_row[of_row != 0]) == ids
            np.testing.assert_allclose(found.scores[row, n], score, rtol=1e-5)


@pytest.mark.stands_for("searches with several models")
def test_a_score_is_the_search_s_own():
    model = IdModel(unlike_models())
    options = Search(beam_size=3, max_length=5, length_penalty=0.7)
    found = search(model, SOURCE, options)
    target = found.ids[:, 0].numpy()
    ended = (target == EOS_ID).any(axis=1)
    assert ended.any()
    ids = tf.constant(SOURCE), tf.constant(target)
    scores, lengths = model.score_ids(*ids, 0.7)
    close(scores[ended], found.scores[:, 0][ended], 1e-4)
    np.testing.assert_array_equal(lengths, found.lengths[:, 0])


PREFIX = tf.constant([[7, 8], [9, 0], [0, 0]])
SEEDS = tf.constant([[3, 1], [5, 1], [7, 1]])


@pytest.mark.parametrize(
    "options, prefix, seeds",
    [
        (Search(beam_size=3, n_best=2), PREFIX, None),
        (Search(n_best=5, sampling=Sampling()), None, SEEDS),
    ],
    ids=["search", "draws"],
)
def test_a_model_with_itself_finds_its_own(options, prefix, seeds):
    model = make_model(num_layers=1)
    options = dataclasses.replace(options, max_extra_length=5)
    found, expected = (
        search(IdModel(each), SOURCE, options, prefix=prefix, seeds=seeds)
        for each in ([model] * 3, model)
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.slow
def test_an_ensemble_has_weights_in_8_bits_too():
    models = unlike_models()[:2]
    options = Search(beam_size=3, max_extra_length=5)
    expected, found = (
        search(IdModel(models, *frozen), SOURCE, options).scores
        for frozen in ([], [Int8Weights(*models)])
    )
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert not np.array_equal(found, expected)


def test_what_is_no_ensemble_is_refused():
    with pytest.raises(ValueError, match="one vocabulary"):
        IdModel([make_model(), random_model()])
