"""What counts as texts, and one batch of them."""

import numpy as np
import pandas
import pytest
import sample_runs
import tensorflow as tf
from own_models import WordPieces

import keras_transformer as kt
from keras_transformer.data.texts import checked_pairs, checked_texts

TEXTS = ["ein kleiner Hund", "", "laut"]


@pytest.fixture(scope="module")
def tokenizer():
    return sample_runs.digit_tokenizer()


TABLE = pandas.DataFrame({"en": ["a"], "de": ["b"]})


@pytest.mark.parametrize(
    "texts", ["runs/text.en", b"text", None, 7, {"train": ["a"]}, TABLE]
)
def test_one_text_or_none_is_no_list_of_texts(texts):
    with pytest.raises(kt.UserError) as caught:
        list(checked_texts("sources", texts))
    assert "`sources`" in str(caught.value) and "\n" not in str(caught.value)
    assert list(checked_texts("sources", TABLE["de"])) == ["b"]


@pytest.mark.parametrize("wrong, called", [(None, "None"), (b"a", "bytes")])
def test_what_is_no_text_is_named_by_its_place(tokenizer, wrong, called):
    with pytest.raises(kt.UserError, match=f"place 2 of .* {called}"):
        list(checked_texts("texts", ["a", "b", wrong]))
    with pytest.raises(kt.UserError, match="place 1 of pairs"):
        list(checked_pairs("pairs", [("a", "b"), ("c", wrong)]))
    # A set has no order.
    with pytest.raises(kt.UserError, match="place 0 of pairs"):
        list(checked_pairs("pairs", [{"a", "b"}]))
    # TensorFlow takes bytes.
    with pytest.raises(kt.UserError, match="place 1 of `text`"):
        tokenizer.tokenize(["a", None])


def test_half_a_surrogate_pair_or_a_zero_byte_is_named_by_its_place(tokenizer):
    pairs = {"train": [("a", "b"), ("c", "d\ud83d")]}
    with pytest.raises(kt.UserError, match=r"'\\ud83d', in place 1 of train;"):
        kt.open_corpus(pairs)
    for tokenize in (tokenizer.tokenize, tokenizer.tokenize_many):
        with pytest.raises(kt.UserError, match=r"'\\ud83d', in place 1 of"):
            tokenize(["a", "d\ud83d"])
    with pytest.raises(kt.UserError, match="zero byte, in place 1 of train;"):
        kt.open_corpus({"train": [("a", "b"), ("c", "d\0")]})


def test_a_path_is_no_text_to_learn_from(tokenizer, tmp_path):
    path = str(tmp_path / "train.en")
    target = tmp_path / "tokenizer.model"
    for call in (
        lambda: kt.Tokenizer.train(path, 300, target),
        lambda: kt.batches(path, tokenizer),
        lambda: kt.batches([("a", "b")], tokenizer, "4096"),
        lambda: tokenizer.tokenize(path),
        lambda: kt.batch(path, path, tokenizer),
        lambda: kt.Translator(tokenizer, None),
        lambda: kt.export(tokenizer, tmp_path / "exported"),
        lambda: kt.open_corpus(None),
        lambda: kt.open_corpus([("a", "b")]).pairs([("a", "b")]),
    ):
        with pytest.raises(kt.UserError, match="^Expected `"):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_batch_shifts_its_target_behind_the_begin_token(tokenizer, in_graph):
    sources, targets = TEXTS, TEXTS[::-1]
    batch = kt.batch(sources, targets, tokenizer)
    if in_graph:
        dataset = tf.data.Dataset.from_tensors((sources, targets))
        (batch,) = dataset.map(lambda s, t: kt.batch(s, t, tokenizer))
    (source, target_in), target_out = batch
    ids = [row.numpy().tolist() for row in tokenizer.target.tokenize(targets)]
    longest = max(map(len, ids))
    expected_out = [row + [0] * (longest - len(row)) for row in ids]
    expected_in = [[2, *row[:-1]] + [0] * (longest - len(row)) for row in ids]
    np.testing.assert_array_equal(target_out, expected_out)
    np.testing.assert_array_equal(target_in, expected_in)
    np.testing.assert_array_equal(
        source, tokenizer.tokenize(sources).to_tensor(0)
    )


def test_a_batch_is_made_of_as_many_targets_as_sources(tokenizer):
    for kind in (list, tf.constant):
        with pytest.raises(kt.UserError, match="`sources`, 3"):
            kt.batch(kind(TEXTS), kind(TEXTS[1:]), tokenizer)
    with pytest.raises(kt.UserError, match="`.batch`"):
        kt.batch(tf.constant("a"), tf.constant("b"), tokenizer)
    with pytest.raises(kt.UserError, match="`tokenizer`"):
        kt.batch(TEXTS, TEXTS, "tokenizer.model")


def test_without_a_shuffle_there_is_a_row_for_each_pair(tokenizer):
    pairs = [("ein Hund", "laut")] * 203
    dataset = kt.batches(pairs, tokenizer, 257, shuffle=False)
    assert sum(len(target) for _, target in dataset) == 203
    for (source, target_in), target in dataset:
        assert source.shape[0] == target_in.shape[0]
        assert (target_in[:, 0] == 2).numpy().all() and target.shape[1] > 1


def test_a_batch_takes_a_tokenizer_made_elsewhere():
    words = WordPieces("one two three")
    tokenizer = kt.TokenizerAdapter(words, pad_id=0)
    for texts in (["one", "two three"], tf.constant(["one", "two three"])):
        (source, target_in), target_out = kt.batch(texts, texts, tokenizer)
        # Begin 2 and end 3 as they stand in a source, one each in a target.
        assert source.numpy().tolist() == [[2, 4, 3, 0], [2, 5, 6, 3]]
        assert target_in.numpy().tolist() == [[2, 4, 0], [2, 5, 6]]
        assert target_out.numpy().tolist() == [[4, 3, 0], [5, 6, 3]]
