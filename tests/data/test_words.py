"""Tokenising in bulk gives the ids of the operator that the export holds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from natural_corpus import same_ids, train_pieces

import keras_transformer as kt
from keras_transformer.data import learning, sentencepiece_file
from keras_transformer.data.tokenizer import Tokenizer

PAIRS = [*itertools.islice(kt.open_corpus("demo").pairs("train"), 2_003)]
TEXT = [text for pair in PAIRS for text in pair]
# Every kind of space, what joins, what goes, what becomes several characters
# or a space and another, and what byte-pair encoding has no piece for.
NASTY = (
    " \t\n\r\0\x07\x85\xa0\u2003\u3000\u200b\u200d\u200e\ufeff\ufffd▁~～¨´"
    "ﬁ㎏½…ßäÄé한语😀👨\u0301\u0308"
)


@pytest.fixture(scope="module")
def tokenizer():
    """One made elsewhere; ours is that of `test_normalized_text`."""
    # Runs of spaces and signs, so that merges near a space are learnt too.
    text = [*TEXT, "…  ¨ a ¨ ▁▁b ½½ ﬁx"] * 2
    rule = dict(normalization_rule_name="nmt_nfkc")
    return Tokenizer(learning._train(iter(text), vocab_size=700, **rule))


@given(
    st.lists(
        st.text(st.sampled_from(NASTY + "ab") | st.characters(codec="utf-8"))
    )
)
def test_any_text_gets_the_ids_of_the_operator(tokenizer, texts):
    same_ids(tokenizer, ["a", *texts])


def test_words_beyond_the_memory_get_the_same_ids(tokenizer, monkeypatch):
    monkeypatch.setattr(sentencepiece_file, "MOST_WORDS", 3)
    monkeypatch.setattr(sentencepiece_file, "LONGEST_WORD", 2)
    same_ids(Tokenizer(tokenizer.model), TEXT[:97])


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "unigram"},
        {"split_by_whitespace": False},
        {"normalization_rule_name": "identity"},
        {"byte_fallback": False},
        {"user_defined_symbols": ["a b"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_vocabulary_that_reaches_over_spaces_gets_its_own_ids(change):
    options = dict(normalization_rule_name="nmt_nfkc", byte_fallback=True)
    model = train_pieces(TEXT[:1009], 600, **{**options, **change})
    tokenizer = Tokenizer(model)
    assert not sentencepiece_file.are_independent(tokenizer.model)
    same_ids(tokenizer, [*TEXT[:97], "x  a b\t語  ｱ 語 \n y ", " ", NASTY])
