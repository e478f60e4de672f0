"""The built-in corpus: whole, and fair to test on."""

import itertools
import runpy

import pytest
from project_table import ROOT

import keras_transformer as kt


@pytest.mark.example
def test_the_example_makes_the_text_of_all_quoted_figures(tmp_path):
    runpy.run_path(f"{ROOT}/examples/demo_corpus.py")["main"](tmp_path)
    made, kept = kt.open_corpus(tmp_path), kt.open_corpus("demo")
    for split, size in dict(train=20_000, val=500, test=500).items():
        pairs = [*kept.pairs(split)]
        assert len(pairs) == size and pairs == [*made.pairs(split)]


def test_no_text_occurs_in_two_splits_or_twice_in_one():
    demo = kt.open_corpus("demo")
    pairs = [*itertools.chain(*map(demo.pairs, ("train", "val", "test")))]
    for side in zip(*pairs, strict=True):
        assert len(side) == len(set(side)) == 21_000


def test_the_other_direction_has_the_same_pairs_turned():
    german = kt.open_corpus("demo", "de-AT", "en-GB").pairs("val")
    english = kt.open_corpus("demo").pairs("val")
    assert [pair[::-1] for pair in german] == [*english]


def test_other_languages_are_refused():
    with pytest.raises(kt.UserError, match="English and German.* en and ko;"):
        kt.open_corpus("demo", target_lang="ko")
