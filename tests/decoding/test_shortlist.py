"""A search over a few words, against one over all with the others ruled out."""

import numpy as np
import pytest
import tensorflow as tf
from model_searches import search_graph
from small_models import make_model as random_model

from keras_transformer.config import Search
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.cached_steps import CachedSteps
from keras_transformer.decoding.frozen_weights import Int8Weights, PackedWeights
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.decoding.shortlist import Shortlist

SLOW = pytest.mark.slow
SIZE = 211
SOURCE = np.array([[5, 71, 9, 131, 3], [22, 3, 0, 0, 0], [199, 8, 3, 0, 0]])
SOURCE = SOURCE.astype("int32")


def make_model(**changes):
    return random_model(vocab_size=SIZE, max_positions=23, **changes)


def some_candidates(seed=0):
    """Five candidates for each piece, and three for all."""
    draw = np.random.default_rng(seed)
    candidates = draw.integers(4, SIZE, [SIZE, 5])
    candidates[0, 3:] = 0
    return candidates


def of_allowed_words(model, source, options, allowed, prefix=None):
    """Search the whole vocabulary, all other words' logits at -1e9."""
    steps = CachedSteps(model, tf.constant(source), options.beam_size)
    others = np.where(np.isin(np.arange(SIZE), list(allowed)), 0.0, -1e9)

    def step(*inputs):
        logits, *more = steps.step(*inputs)
        return logits + others.astype("float32"), *more

    names = "beam_size", "n_best", "no_repeat_ngram"
    return beam_search(
        step,
        steps.state,
        shared=steps.shared,
        max_lengths=(source != 0).sum(1) + options.max_extra_length,
        prefix=prefix,
        **{name: getattr(options, name) for name in names},
    )


@pytest.mark.parametrize(
    "beam_size, repeats",
    [(3, 2), *(pytest.param(n, 0, marks=SLOW) for n in (1, 8))],
)
def test_a_search_is_one_over_all_without_the_others(beam_size, repeats):
    model, candidates = make_model(), some_candidates()
    how = dict(n_best=min(beam_size, 2), no_repeat_ngram=repeats)
    options = Search(beam_size=beam_size, max_extra_length=11, **how)
    search = search_graph(IdModel(model, None, Shortlist(candidates)), options)
    for source in (SOURCE, SOURCE[:1]):
        allowed = {0, 1, 2, 3, *candidates[0], *candidates[source].ravel()}
        found = search(source)
        expected = of_allowed_words(model, source, options, allowed)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
        assert set(found.ids.numpy().ravel()) <= allowed


def test_a_prefix_is_written_though_it_is_no_candidate():
    model, candidates = make_model(), some_candidates()
    options = Search(beam_size=3, max_extra_length=11)
    prefix = np.zeros([len(SOURCE), 2], "int32")
    prefix[0], prefix[1, 0] = [SIZE - 1, SIZE - 2], SIZE - 3
    candidates[candidates > SIZE - 4] = 4
    allowed = {0, 1, 2, 3, *candidates[0], *candidates[SOURCE].ravel()}
    assert not allowed & set(range(SIZE - 3, SIZE))
    search = search_graph(
        IdModel(model, None, Shortlist(candidates)), options, 2
    )
    found = search(SOURCE, prefix)
    allowed |= {*prefix.ravel()}
    expected = of_allowed_words(model, SOURCE, options, allowed, prefix)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.ids[0, 0, :2], prefix[0])
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize(
    "precision",
    ["float32", *(pytest.param(p, marks=SLOW) for p in ("bfloat16", "int8"))],
)
def test_frozen_weights_have_a_shortlist_too(precision):
    # All words are candidates: nothing may change.
    dtype = "bfloat16" if precision == "bfloat16" else "float32"
    model = make_model(dtype=dtype, num_layers=1)
    everything = np.arange(SIZE)[None] * np.ones([SIZE, 1], int)
    options = Search(beam_size=3, max_extra_length=11)
    found = []
    for shortlist in (Shortlist(everything), None):
        frozen = (Int8Weights if precision == "int8" else PackedWeights)(model)
        frozen_model = IdModel(model, frozen, shortlist)
        found.append(search_graph(frozen_model, options)(SOURCE))
    rtol = 1e-5 if precision == "float32" else 0.02
    np.testing.assert_allclose(found[0].scores, found[1].scores, rtol=rtol)
    if precision == "float32":
        np.testing.assert_array_equal(found[0].ids, found[1].ids)


def test_the_history_of_a_search_names_pieces_of_the_whole_vocabulary():
    model, candidates = make_model(), some_candidates()
    options = Search(beam_size=3, max_extra_length=11)
    result, history = IdModel(
        model, None, Shortlist(candidates)
    ).beam_search_ids(options, tf.constant(SOURCE[:1]), with_history=True)
    allowed = {0, 1, 2, 3, *candidates[0], *candidates[SOURCE[:1]].ravel()}
    is_one = history.log_probs.numpy() > -np.inf
    tokens = history.tokens.numpy()[is_one]
    assert set(tokens) <= allowed
    written = result.ids.numpy()[0, 0]
    assert set(written[written > 0]) <= set(tokens)
    assert max(tokens) > len(allowed)  # They are ids, not places.
