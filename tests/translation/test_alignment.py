"""Attention of whole translations, and the word alignment that it gives."""

import numpy as np
import pytest
import sample_runs
import tensorflow as tf
from small_models import make_model

from keras_transformer import config
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.translation.alignment import (
    align_words,
    words_of_pieces,
)
from keras_transformer.translation.translator import Translator

PAD, BOS, EOS = config.PAD_ID, config.BOS_ID, config.EOS_ID

SOURCES = ["the dog runs", "laut und laut", "", "a small dog", "ein kleiner"]
TARGETS = ["ein Hund", "über die grüne Wiese", "", " ", "meadow"]


@pytest.mark.parametrize(
    ("text", "pieces", "words"),
    [
        ("ab c", ["a", "b", " c"], [0, 0, 1]),
        # A space that is a piece of its own goes to the word it begins.
        ("a b", ["a", " ", "b"], [0, 1, 1]),
        # Two bytes of a character, of which the last one has the text.
        ("a 日b", ["a", " ", "", "日", "b"], [0, 1, 1, 1, 1]),
        ("a", ["a", ""], [0, 0]),
        ("", [], []),
    ],
)
def test_each_piece_belongs_to_a_word_between_white_space(text, pieces, words):
    sizes = [len(piece.encode()) for piece in pieces]
    # If the text is longer than the pieces, the rest is at its end.
    ends = np.cumsum(sizes, dtype=int)
    starts = ends - sizes

    found = words_of_pieces(text.encode(), starts, ends, "en")
    assert found == [range(word, word + 1) for word in words]


def test_a_piece_over_two_words_belongs_to_both():
    found = words_of_pieces(b"ab cd", [0, 1, 4], [1, 4, 5], "en")
    assert found == [range(0, 1), range(0, 2), range(1, 2)]
    # 0.3 and half of 0.5, against half of 0.5 and 0.2.
    assert align_words(np.array([[0.3, 0.5, 0.2]]), found, [[0]]) == [(0, 0)]
    assert align_words(np.array([[0.2, 0.5, 0.3]]), found, [[0]]) == [(1, 0)]


def test_each_target_word_gets_the_source_word_that_it_looks_at_most():
    # Source "ab c", target "x yz": pieces a b c </s> and x y z </s>.
    attention = np.array(
        [
            # x: 0.3 for "c" alone, but a and b add up to 0.4.
            [0.2, 0.2, 0.3, 0.3],
            # y and z: "ab" has 0.45 and 0.1, "c" has 0.3 and 0.3.
            [0.4, 0.05, 0.3, 0.25],
            [0.05, 0.05, 0.3, 0.6],
            [0.0, 0.0, 1.0, 0.0],
        ]
    )
    words = [[0], [0], [1]], [[0], [1], [1]]
    assert align_words(attention, *words) == [(0, 0), (1, 1)]


def test_of_equal_words_the_first_is_taken_and_no_words_give_no_pairs():
    attention = np.full([3, 4], 0.25)
    two = [[0], [1]]
    assert align_words(attention, [*two, [2]], two) == [(0, 0), (0, 1)]
    assert align_words(attention, [], two) == []
    assert align_words(attention, two, []) == []


def padded(rows):
    return tf.ragged.constant(rows, tf.int32).to_tensor(PAD)


def test_attention_is_what_every_step_of_a_search_sees(small_model):
    source = padded([[5, 9, 17, EOS], [22, EOS]])
    target = padded([[8, 20, 6, 11, EOS], [7, EOS]])

    found = IdModel(small_model).attention_ids(source, target).numpy()

    # 2 rows, 2 layers, 3 heads, 5 target and 4 source pieces.
    assert found.shape == (2, 2, 3, 5, 4)
    written = [[BOS], [BOS]]
    for t in range(5):
        # The model reads what is written so far, no more.
        seen = small_model.attention_weights(source, tf.constant(written))
        for row, length in enumerate([5, 2]):
            for layer, weights in enumerate(seen["cross"]):
                expected = weights[row, :, -1] if t < length else 0.0
                np.testing.assert_allclose(
                    found[row, layer, :, t], expected, rtol=1e-5, atol=1e-6
                )
            written[row] = [*written[row], int(target[row, t])]


def test_attention_is_a_distribution_over_the_pieces_of_the_source(
    small_translator,
):
    found = small_translator.attention(SOURCES, TARGETS)

    tokenizer = small_translator.tokenizer
    for source, target, attention in zip(SOURCES, TARGETS, found, strict=True):
        source_ids, target_ids = tokenizer.tokenize([source, target]).to_list()
        assert attention.source_pieces == tokenizer.pieces(source_ids)
        assert attention.target_pieces == tokenizer.pieces(target_ids)
        assert attention.target_pieces[-1] == "</s>"
        shape = (2, 3, len(target_ids), len(source_ids))
        assert attention.weights.shape == shape
        np.testing.assert_allclose(
            attention.weights.sum(axis=-1), 1.0, rtol=1e-5
        )
        by_hand = sum(
            attention.weights[layer, head]
            for layer in range(2)
            for head in range(3)
        )
        np.testing.assert_allclose(attention.mean(), by_hand / 6, rtol=1e-5)


def test_a_source_that_is_cut_is_aligned_as_far_as_it_was_read(
    small_translator,
):
    text = "laut " * 11
    (attention,) = small_translator.attention(
        [text], ["Hund"], max_source_length=5
    )
    assert len(attention.source_pieces) == 5
    assert attention.source_pieces[-1] == "</s>"
    ((pair,),) = small_translator.align([text], ["Hund"], max_source_length=5)
    assert pair[0] < 4 and pair[1] == 0


def test_models_with_other_numbers_of_heads_align_together(small_translator):
    tokenizer = small_translator.tokenizer
    sizes = dict(vocab_size=tokenizer.vocab_size, max_positions=101)
    models = [make_model(num_heads=heads, **sizes) for heads in (2, 3)]
    pair = ["the dog runs over the meadow"], ["ein Hund über die Wiese"]
    together = Translator(models, tokenizer)
    with pytest.raises(config.UserError, match="equal numbers of heads"):
        together.attention(*pair)
    means = [
        Translator(model, tokenizer).attention(*pair)[0].mean()
        for model in models
    ]
    words = [
        [piece.startswith("▁") for piece in tokenizer.pieces(ids)[:-1]]
        for (ids,) in (tokenizer.tokenize(text).to_list() for text in pair)
    ]
    # Numbers of words, from 0: each begins with a space.
    of_source, of_target = (
        [[number - 1] for number in np.cumsum(begins)] for begins in words
    )
    expected = align_words(sum(means) / 2, of_source, of_target)
    assert together.align(*pair) == [expected]


def test_words_of_a_learnt_toy_align_with_their_translations():
    translator = sample_runs.digit_translator()
    sources, targets = sample_runs.digit_corpus()["test"]

    found = translator.align(sources, targets)

    right = wrong = 0
    for target, pairs in zip(targets, found, strict=True):
        assert [word for _, word in pairs] == list(range(len(target.split())))
        right += sum(source == word for source, word in pairs)
        wrong += sum(source != word for source, word in pairs)
    # Digits keep their order; by chance two of nine would be right.
    assert right > 1.5 * wrong, (right, wrong)


def test_pairs_count_the_words_of_the_texts_as_they_were_given():
    translator = sample_runs.digit_translator()
    plain = translator.align(["two five one"], ["zwei fünf eins"])
    spaced = translator.align(["  two\u2003 five\tone "], ["zwei  fünf\neins "])
    assert plain == spaced
    assert [word for _, word in plain[0]] == [0, 1, 2]
    assert len({word for word, _ in plain[0]}) > 1


def test_blank_texts_have_no_pairs(small_translator):
    assert small_translator.align(["", "dog", ""], ["", "", "Hund"]) == [[]] * 3
    blank = ["\u3000", "\u200b", "\xa0"]
    assert small_translator.align(["dog"] * 3, blank) == [[]] * 3
    assert small_translator.align([], []) == []
    assert small_translator.attention([], []) == []


def test_the_export_tells_what_given_translations_look_at(
    served, small_translator
):
    texts = ["the dog runs", "", "die grüne Wiese und die kleine Wiese laut"]
    targets = ["der Hund", "Hund", "a meadow"]

    found = served("attention", source=texts, target=targets)

    expected = small_translator.attention(texts, targets, max_source_length=11)
    assert len(expected[2].source_pieces) == 11  # It was cut.
    for row, each in enumerate(expected):
        for side in ("source_pieces", "target_pieces"):
            pieces = getattr(each, side)
            names = [name.decode() for name in found[side][row]]
            padding = [""] * (len(names) - len(pieces))
            assert names == pieces + padding
        mean = each.mean()
        padded = np.zeros(found["attention"].shape[1:])
        padded[: mean.shape[0], : mean.shape[1]] = mean
        np.testing.assert_allclose(
            found["attention"][row], padded, rtol=1e-4, atol=1e-5
        )
