"""Beam search against exhaustive search, a plain reference and a lattice."""

import numpy as np
import pytest
import tensorflow as tf
from simple_search import (
    BOS,
    EOS,
    PAD,
    UNK,
    MarkovModel,
    as_hypotheses,
    assert_same,
    every_hypothesis,
    greedy_search,
    log_softmax,
    plain_beam_search,
    random_markov,
    with_unequal_ends,
)

from keras_transformer.config import UserError
from keras_transformer.decoding.beam_search import beam_search


class TreeModel:
    """Free logits for every prefix of every sentence.

    Prefixes are numbered like a heap: the children of n are V n + 1 to
    V n + V. The state is that number, so a search that mixes up its beams
    reads the logits of another prefix.
    """

    def __init__(self, seed, batch, vocab, depth, spread=2.0):
        nodes = sum(vocab**level for level in range(depth))
        draw = np.random.default_rng(seed)
        self.logits = draw.normal(0, spread, (batch, nodes, vocab))
        self.logits = self.logits.astype("float32")
        self.batch, self.vocab = batch, vocab

    def state(self, beams):
        return tf.zeros([self.batch, beams], tf.int32)

    def step(self, ids, position, node):
        node = tf.where(position == 0, node, node * self.vocab + ids + 1)
        return tf.gather(self.logits, node, batch_dims=1), node

    def log_probs(self, sentence, prefix):
        """NumPy, float64."""
        node = 0
        for token in prefix:
            node = node * self.vocab + token + 1
        return log_softmax(self.logits[sentence, node])


def search(model, limits, beam_size, **options):
    result = beam_search(
        model.step,
        model.state(beam_size),
        max_lengths=tf.constant(limits),
        beam_size=beam_size,
        **options,
    )
    return [np.asarray(part) for part in result]


PREFIXES = [(), (4,), (1, 4), (4, 4), (4, 1, 1, 1, 1, 1)]
RULES = [
    {},
    {"min_length": 3},
    {"banned_ids": (UNK,)},
    {"banned_ids": tuple(range(5, 17))},  # More than are worth spare places.
    {"no_repeat_ngram": 1},
    {"no_repeat_ngram": 2},
    {"no_repeat_ngram": 3, "banned_ids": (4,)},
    {"prefix": PREFIXES},
    {"prefix": PREFIXES, "no_repeat_ngram": 2, "min_length": 3},
    {"prefix": PREFIXES, "banned_ids": (4,), "no_repeat_ngram": 1},
]


def rules_of(rules, sentence):
    """For the searches with lists, which take one sentence's prefix."""
    prefixes = rules.get("prefix", [()])
    others = {name: rules[name] for name in rules if name != "prefix"}
    return {"forced": prefixes[sentence % len(prefixes)], **others}


def as_tensors(rules, batch):
    """For ours, which takes all prefixes, PAD-filled."""
    if "prefix" not in rules:
        return rules
    prefixes = [PREFIXES[i % len(PREFIXES)] for i in range(batch)]
    return {**rules, "prefix": tf.ragged.constant(prefixes).to_tensor(PAD)}


# Besides EOS, a vocabulary of 5 offers two tokens: with a limit of 5 a beam of
# 2^4 drops nothing.
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.3])
@pytest.mark.parametrize("rules", RULES)
def test_a_beam_wide_enough_finds_what_exhaustive_search_finds(rules, alpha):
    batch, longest = 11, 5
    model = TreeModel(seed=3, batch=batch, vocab=5, depth=longest)
    limits = [1 + sentence % longest for sentence in range(batch)]

    how = dict(as_tensors(rules, batch), length_penalty=alpha, n_best=7)
    result = search(model, limits, 16, **how)

    for sentence, limit in enumerate(limits):
        expected = every_hypothesis(
            model, sentence, limit, alpha, **rules_of(rules, sentence)
        )
        assert_same(as_hypotheses(result, sentence), expected[:7])


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "beam_size, n_best, alpha", [(2, 1, 0.0), (3, 3, 0.6), (5, 2, 1.7)]
)
def test_a_narrow_beam_is_the_plain_search_though_it_stops_early(
    rules, beam_size, n_best, alpha
):
    batch = 13
    limits = [1 + sentence % 11 for sentence in range(batch)]
    model = with_unequal_ends(random_markov(beam_size, batch, vocab=19))

    how = dict(as_tensors(rules, batch), length_penalty=alpha, n_best=n_best)
    result = search(model, limits, beam_size, **how)

    for sentence, limit in enumerate(limits):
        each = model, sentence, limit, beam_size, alpha, n_best
        expected = plain_beam_search(*each, **rules_of(rules, sentence))
        assert_same(as_hypotheses(result, sentence), expected)


@pytest.mark.parametrize("max_finished", [1, 2, 3, 7])
def test_a_sentence_stops_once_enough_of_its_best_hypotheses_have_ended(
    max_finished,
):
    batch, limit, beam_size, alpha = 29, 31, 5, 2.3
    model = with_unequal_ends(random_markov(11, batch, vocab=19))

    how = dict(length_penalty=alpha, n_best=2, max_finished=max_finished)
    result = search(model, [limit] * batch, beam_size, **how)

    found = [as_hypotheses(result, sentence) for sentence in range(batch)]
    work = [(model, i, limit, beam_size, alpha) for i in range(batch)]
    for hypotheses, each in zip(found, work, strict=True):
        # At least as many as are to be returned.
        expected = plain_beam_search(*each, 2, max(max_finished, 2))
        assert_same(hypotheses, expected)
    # So strong a length penalty would find longer ones.
    proven = [plain_beam_search(*each, n_best=2)[0][0] for each in work]
    assert proven != [hypotheses[0][0] for hypotheses in found]


@pytest.mark.parametrize("min_length", [0, 5])
def test_one_beam_is_the_loop_over_argmax(min_length):
    batch, limit, alpha = 29, 11, 0.6
    model = random_markov(7, batch, vocab=13)
    model.table[..., [PAD, BOS]] += 3  # Must not be produced all the same.

    result = search(
        model, [limit] * batch, 1, length_penalty=alpha, min_length=min_length
    )

    for sentence in range(batch):
        expected = greedy_search(model, sentence, limit, alpha, min_length)
        assert_same(as_hypotheses(result, sentence), [expected])


def test_a_limit_of_zero_gives_the_empty_hypothesis():
    model = random_markov(1, batch=2, vocab=7)

    ids, scores, lengths = search(model, [0, 3], 3, n_best=2)

    np.testing.assert_array_equal(ids[0], np.full(ids[0].shape, PAD))
    np.testing.assert_array_equal(scores[0], [0.0, -np.inf])
    np.testing.assert_array_equal(lengths[0], [0, 0])
    assert lengths[1, 0] > 0

    # NumPy's logits are as good.
    step = model.step
    model.step = lambda *of: tf.nest.map_structure(np.asarray, step(*of))
    np.testing.assert_array_equal(search(model, [0, 3], 3, n_best=2)[0], ids)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_half_precision_logits_give_float32_scores(dtype):
    # Thirty steps; a sum kept in half precision would lose its last digits.
    exact = random_markov(2, batch=3, vocab=23)
    exact.table[..., EOS] -= 9  # So that few sentences end.
    half = MarkovModel(exact.table)
    half.table = tf.cast(exact.table, dtype)
    exact.table = tf.cast(half.table, tf.float32).numpy()

    result = search(half, [31] * 3, 4, length_penalty=0.0)

    assert result[1].dtype == np.float32
    for sentence in range(3):
        expected = plain_beam_search(exact, sentence, 31, 4, alpha=0.0)
        assert_same(as_hypotheses(result, sentence), expected)


def test_nan_is_refused_at_once_and_finds_nothing_in_a_graph():
    def step(ids, position, state):
        return tf.fill([1, 4, 7], np.nan), state

    given = dict(step=step, state=(), max_lengths=[5])
    with pytest.raises(UserError, match="`step`.* numbers, received nan"):
        beam_search(**given)
    ids, scores, lengths = tf.function(beam_search, autograph=False)(**given)
    assert not np.any(ids) and not np.any(lengths)
    assert scores.numpy() == -np.inf


LOGITS = np.zeros([2, 4, 7], "float32")
OLD = {"h": (np.zeros([2, 4, 5]), np.zeros([2, 4, 3]))}
NEW = {"h": [np.zeros([2, 4, 5]), np.zeros([2, 4, 3])]}


@pytest.mark.parametrize(
    "given, results, called",
    [
        ({"max_lengths": 4}, None, "`max_lengths`"),
        ({"eos_id": 7}, (LOGITS, NEW), "`eos_id`.* from 0 to 6, received 7"),
        ({"pad_id": 3}, None, "`pad_id`.* another id than `eos_id`"),
        ({"prefix": [5, 6]}, None, r"`prefix`.* \(2, P\), received \[2\]"),
        ({"prefix": [[5, 6]]}, None, r"`prefix`.* received \[1, 2\]"),
        # Memory (B, S, D): it would be taken for that of S beams.
        ({"state": [np.zeros([2, 6, 5])]}, None, "`state`"),
        ({"state": np.zeros([8, 5])}, None, r"\(2, 4, ...\).*\[8, 5\]"),
        ({"state": np.zeros([8, 4])}, None, r"\(2, 4, ...\).*\[8, 4\]"),
        ({"state": [None]}, None, r"\(\) for no state.* received None"),
        ({}, None, "`step`.* received None"),
        ({}, LOGITS, r"`step`.*, received TensorShape\(\[2, 4, 7\]"),
        ({}, (LOGITS[0], NEW), "`step`.* logits"),
        ({}, (LOGITS[:1], NEW), "`step`.* logits"),
        ({}, (LOGITS, None), "`step`.* structure"),
        ({}, (LOGITS, NEW["h"]), "`step`.* structure"),
        ({}, (LOGITS, {"h": NEW["h"][:1]}), "`step`.* structure"),
        ({}, (LOGITS, {"h": [np.zeros([2, 4])] * 2}), "`step`.* axes"),
        ({}, (LOGITS, {"h": [tf.zeros([2, 4, 5])] * 2}), "`step`.* dtypes"),
    ],
)
def test_what_a_search_cannot_use_is_refused_in_a_sentence(
    given, results, called
):
    def step(ids, position, state):
        return tf.nest.map_structure(
            lambda t: t if t is None else tf.convert_to_tensor(t), results
        )

    given = {"max_lengths": [5, 5], "state": OLD, **given}
    for search in (beam_search, tf.function(beam_search, autograph=False)):
        with pytest.raises(UserError, match=called):
            search(step, **given)


def test_a_step_may_return_a_list_where_the_state_has_a_tuple():
    result = beam_search(lambda *_: (LOGITS, NEW), OLD, max_lengths=[2, 0])
    # The end token at once, one of five: 2 of the 7 are never written.
    assert result.ids.numpy().tolist() == [[[3, 0]], [[0, 0]]]


def test_other_special_ids_are_honoured():
    # EOS 0, BOS 4 and PAD 5: id 2, the likely one, is an ordinary word here.
    table = np.zeros([1, 1, 6, 6])
    table[0, 0, 4, 2] = 5
    table[0, 0, 2, 0] = 5
    ids, _, lengths = search(
        MarkovModel(table), [7], 2, bos_id=4, eos_id=0, pad_id=5
    )

    np.testing.assert_array_equal(ids[0, 0, :2], [2, 0])
    assert (ids[0, 0, 2:] == 5).all()
    np.testing.assert_array_equal(lengths, [[2]])
