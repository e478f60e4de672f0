"""Marks in training batches, of digits: each word has one translation."""

import functools
import re

import numpy as np
import pytest
from sample_runs import (
    DIGIT_SIZES,
    ENGLISH,
    GERMAN,
    digit_corpus,
    digit_lines,
    make_run,
)

from keras_transformer.config import ModelConfig, TrainingConfig
from keras_transformer.data.pieces import TERM_SYMBOLS
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.training.term_marks import TermMarks

BECOMES = dict(zip(ENGLISH, GERMAN, strict=True))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("marks") / "tokenizer.model"
    return Tokenizer.train(digit_lines(), 307, path, TERM_SYMBOLS)


@pytest.fixture(scope="module")
def corpus(tokenizer):
    pairs = [*zip(*digit_corpus()["train"], strict=True)][:997]
    return TokenisedCorpus.in_memory(pairs, tokenizer)


@pytest.fixture(scope="module")
def marks(tokenizer, corpus):
    """Make what marks a share of sources."""

    @functools.cache
    def make(share, **settings):
        model = ModelConfig(vocab_size=tokenizer.vocab_size, **DIGIT_SIZES)
        recipe = TrainingConfig(term_share=share, **{"seed": 1} | settings)
        return TermMarks(make_run(model, recipe), corpus, tokenizer)

    return make


@pytest.fixture(scope="module")
def batches(marks, corpus, tokenizer):
    """Texts of batches before and after they are marked."""

    def make(share, count=31):
        for number in range(count):
            rows = np.arange(number * 29, number * 29 + 29) % len(corpus)
            source, target = before = corpus.gather(rows, 37, 41)
            after = marks(share)(number, *(side.copy() for side in before))
            yield [_texts(tokenizer, side) for side in (*before, *after)]
            assert np.array_equal(before[0], source)

    return make


def _texts(tokenizer, ids):
    """Write rows as texts; the pieces, since `detokenize` drops no marks."""
    return [
        "".join(tokenizer.pieces(row[: np.count_nonzero(row) - 1]))
        .replace("▁", " ")
        .strip()
        for row in ids
    ]


def test_a_symbol_stands_for_words_that_belong_together(batches):
    wanting = keeping = 0
    for sources, targets, marked, wanted in batches(1.0):
        for source, target, new, now in zip(
            sources, targets, marked, wanted, strict=True
        ):
            # What is wanted, put back on both sides, gives the pair.
            stands_for = dict(re.findall("(<kept.>)(.*?)</term>", new))
            assert [*stands_for] == sorted(stands_for)
            assert [*stands_for] == sorted(re.findall("<kept.>", now))
            if all(said.strip() for said in stands_for.values()):
                whole = now
                for symbol, said in stands_for.items():
                    whole = whole.replace(symbol, said)
                assert whole.split() == target.split()
            if len(stands_for) == 1:
                before, after = re.split("<kept.>.*?</term>", new)
                gone = source.removeprefix(before).removesuffix(after)
                before, after = re.split("<kept.>", now)
                theirs = target.removeprefix(before).removesuffix(after)
                assert theirs.split() == [BECOMES[x] for x in gone.split()]
            keeps = [not said.strip() for said in stands_for.values()]
            keeping += sum(keeps)
            wanting += len(keeps) - sum(keeps)
    assert keeping + wanting > 800
    assert keeping / (keeping + wanting) == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_about_the_share_of_sources_has_marks(batches, share):
    rows = ["<kept" in x for *_, new, _ in batches(share, 211) for x in new]
    assert np.mean(rows) == pytest.approx(share, abs=0.08)


def test_marks_are_a_function_of_seed_and_number(marks, corpus):
    batch = corpus.gather(np.arange(97), 37, 41)
    first, again = marks(1.0)(7, *batch), marks(1.0)(7, *batch)
    others = marks(1.0)(8, *batch), marks(1.0, seed=2)(7, *batch)
    assert all(map(np.array_equal, first, again))
    for other in others:
        assert not np.array_equal(first[0], other[0])


def test_sides_grow_no_longer_than_the_longest_pair(marks, corpus):
    mark = marks(1.0, max_length=43)
    batch = corpus.gather(np.arange(97), 41, 41)
    for number in range(17):
        for side in mark(number, *batch):
            assert np.count_nonzero(side, axis=1).max() <= 43


def test_a_row_of_padding_stays_one(marks, corpus):
    rows = np.array([3, -1, 5])
    source, target = marks(1.0)(0, *corpus.gather(rows, 37, 41))
    assert not source[1].any() and not target[1].any()
    assert source[0].any()


def test_no_marked_words_enclose_others_in_the_target(
    marks, corpus, monkeypatch
):
    # The second and the third word become the first and the third: between
    # them stands what the first one becomes.
    linked = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]], bool)
    drawing = marks(1.0)
    monkeypatch.setattr(drawing, "_linked", lambda *_: linked.copy())
    ids = [side[0, :3] for side in corpus.gather(np.arange(1), 37, 41)]
    places = [np.stack([np.arange(3), np.arange(1, 4)], axis=1)] * 2
    counts = set()
    for seed in range(101):
        spans = drawing._spans(ids, places, np.random.default_rng(seed))
        written = [range(first, last) for *_, first, last in spans]
        words = [word for each in written for word in each]
        assert len(words) == len(set(words))
        counts.add(len(spans))
    assert max(counts) > 1
