"""Batches: nothing lost, nothing over budget, resumable."""

import hashlib
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from natural_corpus import corpus, natural_corpus
from small_models import make_model

from keras_transformer.data import batch_plan, batching
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.records import Side, TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.losses import SmoothedCrossEntropy

PAD, BOS, EOS = 0, 2, 3


def elements(dataset, count=-1):
    return list(dataset.take(count).as_numpy_iterator())


@pytest.fixture(scope="module")
def natural_plan():
    return BatchPlan(natural_corpus(), 1009, seed=5)


lengths = st.integers(1, 61)


@given(
    st.lists(st.tuples(lengths, lengths), min_size=1, max_size=211),
    st.integers(1, 307),
    st.sampled_from([1, 3, 8]),
    st.booleans(),
)
def test_every_pair_comes_once_within_its_budget(
    pairs, batch_tokens, row_multiple, shuffle
):
    pairs = np.array(pairs)
    options = dict(shuffle=shuffle, row_multiple=row_multiple)
    plan = BatchPlan(corpus(*pairs.T), batch_tokens, seed=5, **options)
    for epoch in range(2):
        planned = plan.epoch(epoch)
        assert len(planned) == len(plan)
        rows = np.concatenate([batch.rows for batch in planned])
        assert sorted(rows[rows >= 0]) == list(range(len(pairs)))
        for batch in planned:
            real = pairs[batch.rows[batch.rows >= 0]]
            assert len(real) > 0
            padded = np.array([batch.source_length, batch.target_length])
            assert (real <= padded).all()
            size = len(batch.rows)
            assert size == 1 or size * padded.max() <= batch_tokens
            assert size % row_multiple == 0 or size < row_multiple
            assert (size, *padded) in plan.shapes()


def test_all_epochs_have_the_same_shapes(natural_plan):
    shapes = [
        [(len(b.rows), b.source_length, b.target_length) for b in epoch]
        for epoch in map(natural_plan.epoch, range(3))
    ]
    assert sorted(shapes[0]) == sorted(shapes[1]) == sorted(shapes[2])
    assert sorted(set(shapes[0])) == natural_plan.shapes()
    # The shape of a batch is told without its rows.
    told = map(natural_plan.shape, range(2 * len(natural_plan)))
    assert list(told) == shapes[0] + shapes[1]
    assert shapes[0] != shapes[1]


def test_an_epoch_mixes_all_lengths_and_the_next_one_other_pairs(natural_plan):
    first, second = (
        {frozenset(batch.rows) for batch in natural_plan.epoch(epoch)}
        for epoch in range(2)
    )
    assert len(first & second) < len(first) / 10
    padded = [batch.target_length for batch in natural_plan.epoch(0)]
    # Sorted they would correlate with their place at nearly 1.
    assert abs(np.corrcoef(padded, np.arange(len(padded)))[0, 1]) < 0.3


def test_a_natural_corpus_wastes_little_on_few_shapes():
    plan = BatchPlan(natural_corpus(pairs=28_997), 4096)
    assert plan.padding_waste() < 0.06
    assert len(plan.shapes()) < 80
    # A coarser ladder has fewer.
    shapes = [
        len(BatchPlan(natural_corpus(), 1009, length_growth=growth).shapes())
        for growth in (1.06, 1.2, 1.5)
    ]
    assert shapes[0] > shapes[1] > shapes[2]


def test_every_batch_is_what_its_plan_says():
    plan = BatchPlan(natural_corpus(pairs=503), 509, seed=5)
    planned = [*plan.epoch(0), *plan.epoch(1)]
    streamed = elements(batching.stream(plan), len(planned))
    padding_rows = 0
    for (rows, *padded), ((source, target_in), target_out) in zip(
        planned, streamed, strict=True
    ):
        assert source.shape == (len(rows), padded[0])
        assert target_in.shape == target_out.shape == (len(rows), padded[1])
        # The tokens tell their row.
        assert (source[rows >= 0, 0] == 11 + rows[rows >= 0]).all()
        for ids in (source, target_in, target_out):
            assert not ids[rows < 0].any()
        padding_rows += (rows < 0).sum()
        assert (target_in[rows >= 0, 0] == BOS).all()
        ends = (target_out == EOS).sum(axis=1)
        assert ends.tolist() == (rows >= 0).astype(int).tolist()
    assert padding_rows > 0


@pytest.mark.parametrize("skipped", [0, 3, 17, 50])
def test_a_stream_goes_on_where_another_stopped(skipped):
    plan = BatchPlan(natural_corpus(pairs=211), 257, seed=5)
    assert 17 < len(plan) < 50 < 3 * len(plan)
    whole = elements(batching.stream(plan), skipped + 5)
    rest = elements(batching.stream(plan, skipped), 5)
    for left, right in zip(whole[skipped:], rest, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, left, right)


def random_corpus(pairs, seed, longest):
    """Lengths from integers alone, so that every machine draws the same."""
    random = np.random.default_rng(seed)
    source = random.integers(1, 41, pairs) * random.integers(1, 8, pairs) // 2
    target = source * random.integers(60, 160, pairs) // 100
    sides = (
        np.clip(side, 2, longest).astype(np.int32) for side in (source, target)
    )
    nothing = np.zeros(0, np.int64)
    return TokenisedCorpus(*(Side(nothing, side) for side in sides))


def digest(plan, epochs=(0, 1, 13)):
    found = hashlib.blake2b(digest_size=8)
    for epoch in epochs:
        for rows, source_length, target_length in plan.epoch(epoch):
            shape = [len(rows), source_length, target_length]
            found.update(np.array([*shape, *rows], "<i8").tobytes())
    return found.hexdigest()


# Runs that resume rely on it. Written down from the code before, which sorted
# all pairs at once and cut them one window at a time.
EARLIER = [
    # Corpus, tokens of a batch, other options, digest, number of batches.
    ((10007, 1, 256), 4096, {"seed": 3}, "a78c74ac986dba6a", 134),
    (
        *((10007, 1, 256), 1009),
        {"seed": 5, "length_growth": 1.15, "row_multiple": 3},
        *("f0a8aa0c6cfbe2dc", 595),
    ),
    ((10007, 2, 7919), 149, {"seed": 7}, "ff2ef3f5594e836e", 4161),
    ((503, 2, 7919), 4096, {"shuffle": False}, "c0cdefb2c6b9febf", 9),
    ((1, 3, 256), 1, {"seed": 2}, "e03f280792c490c2", 1),
    ((100003, 4, 97), 25000, {"seed": 11}, "a8c9435ba39376dc", 186),
]


@pytest.mark.parametrize("corpus, tokens, options, earlier, count", EARLIER)
def test_the_plan_is_that_of_earlier_versions(
    corpus, tokens, options, earlier, count, monkeypatch
):
    # Fewer than most corpora have, so that they come in several chunks.
    monkeypatch.setattr(batch_plan, "CHUNK", 4099)
    plan = BatchPlan(random_corpus(*corpus), tokens, **options)
    assert (digest(plan), len(plan)) == (earlier, count)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.model"
    return Tokenizer.train(["one two three", "eins zwei drei"], 290, path)


NUMBERS = "one two three".split()
PAIRS = [
    (" ".join(NUMBERS[: n % 3 + 1] * (n // 3 + 1)), f"drei eins {n}")
    for n in range(13)
]


def read(dataset, words):
    """The batches of an epoch as pairs of texts."""
    batches = []
    for (source, _), target in dataset.as_numpy_iterator():
        sides = (words.detokenize(ids).numpy() for ids in (source, target))
        pairs = zip(*sides, strict=True)
        batches.append([(x.decode(), y.decode()) for x, y in pairs if x or y])
    return batches


def test_texts_are_batched_an_epoch_at_a_time(words):
    dataset = batching.batches(iter(PAIRS), words, 61)
    one, two = read(dataset, words), read(dataset, words)
    assert len(dataset) == len(one) == len(two) > 2
    for epoch in (one, two):
        assert sorted(itertools.chain(*epoch)) == sorted(PAIRS)
    assert one != two
    again = batching.batches(PAIRS, words, 61)
    assert [read(again, words), read(again, words)] == [one, two]


# Fewer and more than are read ahead.
@pytest.mark.parametrize("copies", [1, 7])
def test_an_epoch_that_was_given_up_begins_again(words, copies):
    dataset, again = (
        batching.batches(PAIRS * copies, words, 61) for _ in range(2)
    )
    assert (len(dataset) > 9) == (copies == 7)
    unread = iter(dataset)
    for _ in range(len(dataset) - 1):
        next(unread)
    assert read(dataset, words) == read(again, words)


def test_pairs_left_out_of_batches_are_counted_in_the_log(words, caplog):
    long = [("one " * 60, "eins"), ("", "zwei"), ("eins", "one " * 61)]
    for limit, lost in ((59, 3), (None, 0)):
        kept = batching.batches(PAIRS + long, words, 61, max_length=limit)
        assert sum(map(len, read(kept, words))) == len(PAIRS) + 3 - lost
    (said,) = caplog.messages
    assert "2 pairs above 59 tokens" in said and "1 empty" in said


def test_a_model_that_lacks_pieces_of_the_vocabulary_is_refused(words):
    model = make_model(vocab_size=289, num_layers=1)
    model.compile("sgd", SmoothedCrossEntropy())
    with pytest.raises(ValueError, match="below 289, .*: 289"):
        model.fit(batching.batches(PAIRS, words, 61), shuffle=False)
