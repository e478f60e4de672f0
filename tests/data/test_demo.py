"""The built-in corpus: right, reproducible, and fair to test on."""

import hashlib
import json

import pytest

import keras_transformer as kt
from keras_transformer.data.demo import EXAMPLES, demo_pairs

SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def pairs():
    return {split: demo_pairs(split, "en") for split in SPLITS}


def test_the_text_is_that_of_all_quoted_figures(pairs):
    digests = {
        split: hashlib.blake2b(
            json.dumps(pairs[split]).encode(), digest_size=8
        ).hexdigest()
        for split in SPLITS
    }
    assert digests == {
        "train": "78f69a89fc5ab2ac",
        "val": "30ae8c360bc4981b",
        "test": "ea55682661b15838",
    }


def test_the_other_direction_has_the_same_pairs_turned(pairs):
    turned = [(english, german) for german, english in demo_pairs("val", "de")]
    assert turned == pairs["val"]


def test_other_languages_are_refused():
    with pytest.raises(kt.UserError, match="English and German.* en and ko;"):
        kt.open_corpus("demo", target_lang="ko")


def test_the_examples_are_pairs_that_no_model_is_trained_on(pairs):
    english, german = EXAMPLES["en"], EXAMPLES["de"]
    assert len(english) == len(german) == 5
    assert set(zip(english, german, strict=True)) <= set(pairs["test"])
