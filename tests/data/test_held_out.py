"""A validation split held out of the training text."""

import pytest

from keras_transformer.config import UserError
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.held_out import hold_out

# Every source comes twice, with two translations.
PAIRS = [(f"source {i % 500}", f"target {i}") for i in range(1_000)]


def parted(share=0.2, seed=3, pairs=PAIRS, **others):
    corpus = open_corpus({"train": pairs, **others})
    return hold_out(corpus, "train", "val", share, seed)


def test_no_source_is_on_both_sides_and_no_pair_is_lost():
    test = [("a", "b")]
    corpus = parted(test=test)
    train, held = (list(corpus.pairs(split)) for split in ("train", "val"))
    assert sorted(train + held) == sorted(PAIRS)
    assert not {s for s, _ in train} & {s for s, _ in held}
    # The deviation of a binomial of 500 sources at 0.2, twice each, is 18.
    assert 128 < len(held) < 272
    assert list(corpus.pairs("test")) == test


def test_the_seed_decides_which_pairs_are_held_out():
    corpora = [parted(seed=seed) for seed in (3, 3, 5)]
    first, again, other = (list(each.pairs("val")) for each in corpora)
    assert first == again != other
    # The text of each side has a name of its own.
    splits = ("train", "val")
    names = {each.fingerprint(x) for each in corpora[1:] for x in splits}
    assert len(names) == 4


def test_a_corpus_with_a_validation_split_is_refused():
    with pytest.raises(UserError, match="`validation_share` .* leave it out"):
        parted(val=[("a", "b")])


@pytest.mark.parametrize("share, empty", [(1e-9, "val"), (1 - 1e-9, "train")])
def test_a_share_that_leaves_one_side_empty_is_refused(share, empty):
    with pytest.raises(UserError, match=f"leaves pairs in {empty}"):
        parted(share)
