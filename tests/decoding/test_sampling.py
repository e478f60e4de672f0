"""Sampling over tables of probabilities that are known exactly."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import config
from keras_transformer.config import Sampling, Search
from keras_transformer.decoding.candidates import Rules
from keras_transformer.decoding.sampling import sample

PAD, BOS, EOS = config.PAD_ID, config.BOS_ID, config.EOS_ID
A, B, C, D = 4, 5, 6, 7
V = 11
DRAWS = 4_001
# 99.9th percentiles of chi-square by degrees of freedom, from the usual table.
CHI_SQUARE = {0: 1e-9, 1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52}


def row(**probabilities):
    """Probabilities of the next token by name, as a row of the vocabulary."""
    table = np.zeros(V)
    for name, probability in probabilities.items():
        table[globals()[name]] = probability
    assert abs(table.sum() - 1) < 1e-9
    return table


# What may follow each token: a first-order model.
FOLLOW = {
    BOS: row(A=0.4, B=0.3, C=0.15, D=0.05, EOS=0.1),
    A: row(A=0.1, B=0.2, C=0.3, D=0.2, EOS=0.2),
    B: row(A=0.25, C=0.25, D=0.25, EOS=0.25),
    C: row(B=0.5, D=0.25, EOS=0.25),
    D: row(D=0.6, EOS=0.4),
}
TABLE = np.stack([FOLLOW.get(i, row(EOS=1.0)) for i in range(V)])


def step(ids, position, state):
    """The model of `FOLLOW`, which also counts positions in its state."""
    tf.debugging.assert_equal(state, tf.fill(tf.shape(state), position))
    logits = tf.math.log(tf.constant(TABLE, tf.float32))
    return tf.gather(logits, ids), state + 1


def draw(limits, seeds, sampling=None, banned_ids=(), prefix=None, **options):
    """Sample in a graph; ids, scores and lengths as arrays."""
    n_best = options.setdefault("n_best", 1)
    search = Search(sampling=sampling or Sampling(), **options)

    @tf.function(autograph=False)
    def graph(limits, seeds):
        return sample(
            Rules(search, banned_ids),
            step,
            tf.zeros([tf.size(limits), n_best], tf.int32),
            max_lengths=limits,
            seeds=seeds,
            prefix=prefix,
        )

    found = graph(tf.constant(limits), tf.constant(seeds))
    return [array.numpy() for array in found]


def chi_square(observed, expected):
    """Chi-square of counts against exact probabilities that are not 0."""
    counts = np.bincount(observed, minlength=V)
    assert not counts[expected == 0].any()
    kept = expected > 0
    goal = expected[kept] / expected[kept].sum() * len(observed)
    statistic = ((counts[kept] - goal) ** 2 / goal).sum()
    return statistic, kept.sum() - 1


def assert_drawn_from(observed, expected):
    statistic, freedom = chi_square(observed, expected)
    assert statistic < CHI_SQUARE[freedom], (statistic, freedom)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, FOLLOW[BOS]),
        # Squares: 0.16, 0.09, 0.0225, 0.0025, 0.01.
        ({"temperature": 0.5}, FOLLOW[BOS] ** 2),
        ({"temperature": 2.0}, FOLLOW[BOS] ** 0.5),
        ({"top_k": 3}, row(A=8 / 17, B=6 / 17, C=3 / 17)),
        # 0.4 + 0.3 < 0.75 <= 0.4 + 0.3 + 0.15.
        ({"top_p": 0.75}, row(A=8 / 17, B=6 / 17, C=3 / 17)),
        # Among the three that are left, 8/17 + 6/17 reach 0.8.
        ({"top_k": 3, "top_p": 0.8}, row(A=4 / 7, B=3 / 7)),
        # The temperature comes first: 0.16 + 0.09 of 0.285 reach 0.87.
        ({"temperature": 0.5, "top_p": 0.87}, row(A=0.64, B=0.36)),
        ({"top_k": 1_000}, FOLLOW[BOS]),
        ({"top_k": 1}, row(A=1.0)),
    ],
)
def test_the_first_token_is_drawn_with_its_exact_probability(options, expected):
    ids, _, _ = draw(
        [2], [[3, 17]], Sampling(**options), n_best=DRAWS, min_length=0
    )
    assert_drawn_from(ids[0, :, 0], expected)


def test_a_later_token_is_drawn_given_the_one_before_it():
    ids, _, _ = draw([3], [[3, 23]], n_best=DRAWS)

    for token in (A, B, C):
        followers = ids[0, ids[0, :, 0] == token, 1]
        assert len(followers) > 300
        assert_drawn_from(followers, FOLLOW[token])


def test_rows_and_positions_are_drawn_independently():
    ids, _, _ = draw([3] * DRAWS, [[3, i] for i in range(DRAWS)])

    first = ids[:, 0, 0]
    assert_drawn_from(first, FOLLOW[BOS])
    # Neighbouring rows: the pair (A, A) comes with the product of the two.
    pairs = (first[:-1] == A) & (first[1:] == A)
    assert abs(pairs.mean() - 0.16) < 4 * np.sqrt(0.16 * 0.84 / DRAWS)


def test_a_score_is_that_of_the_plain_model_whatever_was_cut():
    alpha = 0.8
    ids, scores, lengths = draw(
        [5, 3],
        [[3, 1], [3, 2]],
        Sampling(temperature=0.6, top_k=4, top_p=0.9),
        n_best=17,
        length_penalty=alpha,
        no_repeat_ngram=2,
        min_length=2,
    )

    assert len(np.unique(lengths)) > 2 and lengths.min() == 2
    for of_row, scores_of_row in zip(ids, scores, strict=True):
        for tokens, score in zip(of_row, scores_of_row, strict=True):
            tokens = tokens[tokens != PAD]
            before = [BOS, *tokens[:-1]]
            total = np.log(TABLE[before, tokens]).sum()
            expected = total / ((5 + len(tokens)) / 6) ** alpha
            np.testing.assert_allclose(score, expected, rtol=1e-5)
        assert (np.diff(scores_of_row) <= 0).all()  # Best first.


def test_a_draw_ends_at_its_limit_and_the_limit_0_is_empty():
    ids, scores, lengths = draw(
        [0, 1, 5], [[3, 1], [3, 2], [3, 3]], n_best=31, min_length=1_000
    )

    assert lengths.tolist() == [[0] * 31, [1] * 31, [5] * 31]
    assert scores[0].tolist() == [0.0] + [-np.inf] * 30
    assert not (ids == EOS).any()
    assert np.isfinite(scores[1:]).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_row_of_n_tokens_comes_twice(n):
    def repeats(ids):
        ids = ids[ids != PAD]
        rows = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
        return len(rows) - len(set(rows))

    free, _, _ = draw([23], [[3, 1]], n_best=101)
    assert sum(map(repeats, free[0])) > 20
    ids, _, lengths = draw([23], [[3, 1]], n_best=101, no_repeat_ngram=n)
    assert not sum(map(repeats, ids[0]))
    # Only what would repeat is forbidden: other rows of n - 1 come again.
    assert max(lengths[0]) > n + 1


def test_where_nothing_is_allowed_the_draw_ends():
    # After D only D or the end, which comes too early.
    ids, scores, _ = draw(
        [9], [[3, 1]], n_best=3, min_length=9, banned_ids=(A, B, C, D)
    )
    assert (ids[0, :, 0] == EOS).all() and np.isfinite(scores).all()


def test_each_draw_begins_with_its_prefix():
    prefix = tf.constant([[C, B, A], [D, PAD, PAD], [PAD, PAD, PAD]])
    ids, scores, lengths = draw(
        [11, 11, 11],
        [[3, 1], [3, 2], [3, 3]],
        n_best=DRAWS // 4,
        prefix=prefix,
        banned_ids=(C,),  # Banned from draws, not from the prefix.
    )

    assert (ids[0, :, :3] == [C, B, A]).all()
    assert (ids[1, :, 0] == D).all()
    follow_a = np.where(np.arange(V) == C, 0, FOLLOW[A])
    assert_drawn_from(ids[0, :, 3], follow_a)
    assert_drawn_from(ids[1, :, 1], FOLLOW[D])
    follow_bos = np.where(np.arange(V) == C, 0, FOLLOW[BOS])
    assert_drawn_from(ids[2, :, 0], follow_bos)
    # The prefix counts in the score: C B A and the end.
    (shortest,) = np.unique(scores[0, lengths[0] == 4])
    total = np.log(0.15 * 0.5 * 0.25 * 0.2)
    np.testing.assert_allclose(shortest, total / 1.5**0.6, rtol=1e-5)
