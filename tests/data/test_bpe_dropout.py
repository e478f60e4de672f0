"""BPE-dropout: other pieces, the same text, within what was planned."""

import numpy as np
import pytest
from natural_corpus import train_pieces

from keras_transformer.config import UserError
from keras_transformer.data import batching, demo
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.bpe_dropout import ResegmentedCorpus
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer

PAD, EOS = 0, 3
BUDGET = 509
PAIRS = list(demo.demo_pairs("train", "en", "de"))[:997]
TEXT = [text for pair in PAIRS for text in pair]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("dropout") / "tokenizer.model"
    return Tokenizer.train(TEXT, 701, path)


@pytest.fixture(scope="module")
def plain(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dropout") / "records"
    return TokenisedCorpus.build(PAIRS, tokenizer, folder)


@pytest.fixture(scope="module")
def corpus(plain, tokenizer):
    return ResegmentedCorpus(plain, tokenizer, 0.1, 5, None)


@pytest.fixture(scope="module")
def plan(corpus):
    return BatchPlan(corpus, BUDGET, seed=5)


def sides(plan, number):
    """Source and target of a batch as `stream` gives them."""
    (((source, _), target),) = batching.stream(plan, number).take(1)
    return source.numpy(), target.numpy()


def test_text_and_budget_are_kept_and_pieces_are_not(corpus, plan, tokenizer):
    changed = 0
    for number in range(0, len(plan), 3):
        batch = plan.epoch(0)[number]
        for ids, whole in zip(
            sides(plan, number), (corpus.source, corpus.target), strict=True
        ):
            assert ids.size <= BUDGET
            rows = batch.rows[batch.rows >= 0]
            assert (ids[len(rows) :] == PAD).all()
            before = whole.padded(rows, ids.shape[1])
            assert ((ids == EOS).sum(axis=1)[: len(rows)] == 1).all()
            # What follows an end token would be lost with it.
            np.testing.assert_array_equal(
                np.argmax(ids == EOS, axis=1)[: len(rows)],
                (ids != PAD).sum(axis=1)[: len(rows)] - 1,
            )
            texts = [
                tokenizer.detokenize(x) for x in (ids[: len(rows)], before)
            ]
            assert texts[0].numpy().tolist() == texts[1].numpy().tolist()
            changed += (ids[: len(rows)] != before).any(axis=1).sum()
    assert changed > 0.5 * len(PAIRS) / 3


def test_a_batch_is_a_function_of_the_seed_and_its_number(
    plain, plan, tokenizer
):
    again = ResegmentedCorpus(plain, tokenizer, 0.1, 5, None)
    same = BatchPlan(again, BUDGET, seed=5)
    other = BatchPlan(
        ResegmentedCorpus(plain, tokenizer, 0.1, 7, None), BUDGET, seed=5
    )
    number = len(plan) + 3
    plans = (plan, same, other)
    for ids, ids_again, others in zip(
        *(sides(each, number) for each in plans), strict=True
    ):
        np.testing.assert_array_equal(ids, ids_again)
        assert ids.shape != others.shape or (ids != others).any()
    # A pair has other pieces in another epoch.
    rows = np.arange(89)
    one, two = (plan.corpus.gather(rows, 67, 67, n)[0] for n in (2, 3))
    assert (one != two).any(axis=1).sum() > 30


def test_without_room_words_stay_as_they_are(plain, tokenizer):
    corpus = ResegmentedCorpus(plain, tokenizer, 0.9, 5, max_length=1)
    np.testing.assert_array_equal(corpus.source_lengths, plain.source_lengths)
    rows = np.flatnonzero(plain.source_lengths == 7)
    ids, _ = corpus.gather(rows, 7, int(plain.target_lengths.max()), 3)
    np.testing.assert_array_equal(ids, plain.source.padded(rows, 7))
    # With room for one more piece, some rows take it, and none takes more.
    ids, _ = corpus.gather(rows, 8, int(plain.target_lengths.max()), 3)
    assert set((ids != PAD).sum(axis=1)) == {7, 8}
    # No length is planned beyond the greatest.
    corpus = ResegmentedCorpus(plain, tokenizer, 0.5, 5, max_length=11)
    long = plain.source_lengths >= 11
    same = corpus.source_lengths == plain.source_lengths
    assert long.any() and same[long].all()
    assert corpus.source_lengths[~long].max() == 11


def test_most_of_what_dropout_adds_finds_room(plain, corpus, plan):
    added, asked = 0, 0
    widest = int(plain.source_lengths.max()) * 3
    for batch in plan.epoch(0):
        real = batch.rows >= 0
        before = plain.source_lengths[batch.rows[real]].sum()
        planned, _ = corpus.gather(*batch, 3)
        free, _ = corpus.gather(batch.rows, widest, batch.target_length, 3)
        added += (planned != PAD).sum() - before
        asked += (free != PAD).sum() - before
    assert 0.7 * asked < added <= asked


def test_the_way_in_from_python_takes_it(tokenizer):
    def first(dropout):
        options = dict(seed=3, bpe_dropout=dropout)
        dataset = batching.batches(PAIRS[:211], tokenizer, 307, **options)
        (source, _), _ = next(iter(dataset))
        return source

    plain, dropped = first(0.0), first(0.3)
    assert plain.shape != dropped.shape or (plain != dropped).numpy().any()


@pytest.mark.parametrize(
    "space, dropout, told",
    [(" ", 0.1, False), ("", 0.1, True), ("", 0.6, False)],
)
def test_a_rate_that_changes_next_to_nothing_is_told(
    tmp_path, caplog, space, dropout, told
):
    draw = np.random.default_rng(5)
    letters = [chr(0x4E00 + i) for i in range(101)]
    words = ["".join(draw.choice(letters, draw.integers(1, 4)))
             for _ in range(211)]  # fmt: skip
    often = 1 / np.arange(1, 212)
    often /= often.sum()
    text = [space.join(draw.choice(words, 17, p=often)) for _ in range(307)]
    tokenizer = Tokenizer.train(text, 601, tmp_path / "vocabulary")
    pairs = [(source, source) for source in text]
    records = TokenisedCorpus.build(pairs, tokenizer, tmp_path / "records")
    ResegmentedCorpus(records, tokenizer, dropout, 5, None)
    said = [x for x in caplog.messages if x.startswith("BPE-dropout of 0.1 m")]
    assert [x.split()[5] for x in said] == ["source", "target"] * told


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_probability_that_is_none_is_refused(tokenizer, dropout):
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        batching.batches(PAIRS[:3], tokenizer, bpe_dropout=dropout)


def test_a_vocabulary_of_another_kind_is_refused(plain):
    unigram = Tokenizer(train_pieces(TEXT, 307, model_type="unigram"))
    with pytest.raises(UserError, match="byte-pair encoding"):
        ResegmentedCorpus(plain, unigram, 0.1, 5, None)
