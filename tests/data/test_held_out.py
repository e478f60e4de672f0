"""A validation split held out of the training text."""

import pytest

from keras_transformer.config import UserError
from keras_transformer.data.corpora import Mixture, Part, hold_out, open_corpus
from keras_transformer.training.request import understand

# Every source comes twice, with two translations.
PAIRS = [(f"source {i % 500}", f"target {i}") for i in range(1_000)]


def parted(share=0.2, pairs=PAIRS, **others):
    corpus = open_corpus({"train": pairs, **others})
    return hold_out(corpus, "train", "val", share)


def test_no_source_is_on_both_sides_and_no_pair_is_lost():
    test = [("a", "b")]
    corpus = parted(test=test)
    train, held = (list(corpus.pairs(split)) for split in ("train", "val"))
    assert sorted(train + held) == sorted(PAIRS)
    assert not {s for s, _ in train} & {s for s, _ in held}
    # The deviation of a binomial of 500 sources at 0.2, twice each, is 18.
    assert 128 < len(held) < 272
    assert list(corpus.pairs("test")) == test


def test_runs_of_other_seeds_hold_out_the_same():
    how = dict(corpus=PAIRS, preset="tiny", validation_share=0.2)
    first, other = (understand(seed=seed, **how).open_text() for seed in (3, 5))
    assert list(first.pairs("val")) == list(other.pairs("val"))
    for corpus in (parted(), Mixture([(Part("a"), parted())], "train")):
        held = [text for pair in parted().pairs("val") for text in pair]
        assert list(corpus.sentences("val")) == held


def test_a_corpus_with_a_validation_split_is_refused():
    with pytest.raises(UserError, match="split val,"):
        parted(val=[("a", "b")])
    with pytest.raises(UserError, match="split validation,"):
        parted(validation=[("a", "b")])  # Which `val` finds.


@pytest.mark.parametrize("share, empty", [(1e-9, "val"), (1 - 1e-9, "train")])
def test_a_share_that_leaves_one_side_empty_is_refused(share, empty):
    with pytest.raises(UserError, match=empty):
        parted(share).pairs(empty)
