"""Attention of whole translations, and the word alignment that it gives."""

import numpy as np
import pytest
import sample_runs
import tensorflow as tf

from keras_transformer import config
from keras_transformer.data.pieces import TERM_SYMBOLS
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.model import Transformer
from keras_transformer.translation import alignment
from keras_transformer.translation.alignment import align_words, words_of_pieces
from keras_transformer.translation.text_batches import source_ids
from keras_transformer.translation.translator import Translator

PAD, BOS, EOS = config.PAD_ID, config.BOS_ID, config.EOS_ID


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("a b ▁c </s>", [0, 0, 1]),
        # A space that is a piece of its own goes to the word it begins.
        ("a ▁ b </s>", [0, 1, 1]),
        # A character in bytes; what follows the end fills up a batch.
        ("a ▁ <0xE6> <0x97> <0xA5> b </s> <pad> a", [0, 1, 1, 1, 1, 1]),
        ("</s>", []),
    ],
)
def test_each_piece_belongs_to_a_word_between_white_space(pieces, words):
    found = words_of_pieces(pieces.encode().split(), "en")
    assert found == [range(word, word + 1) for word in words]


def test_a_piece_over_two_words_belongs_to_both():
    found = words_of_pieces("a b▁c d </s>".encode().split(), "en")
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


def test_attention_is_what_every_step_of_a_search_sees(small_model):
    source = tf.constant([[5, 9, 17, EOS], [22, EOS, PAD, PAD]])
    target = tf.constant([[8, 20, 6, 11, EOS], [7, EOS, PAD, PAD, PAD]])

    found = IdModel(small_model).attention_ids(source, target).numpy()

    # 2 rows, 5 target and 4 source pieces.
    assert found.shape == (2, 5, 4)
    written = [[BOS], [BOS]]
    for t in range(5):
        # The model reads what is written so far, no more.
        seen = small_model.attention_weights(source, tf.constant(written))
        for row, length in enumerate([5, 2]):
            of_layers = [weights[row, :, -1] for weights in seen["cross"]]
            expected = np.mean(of_layers, axis=(0, 1)) if t < length else 0.0
            np.testing.assert_allclose(
                found[row, t], expected, rtol=1e-5, atol=1e-6
            )
            written[row] = [*written[row], int(target[row, t])]


def test_a_source_that_is_cut_has_no_links(small_translator):
    text = "laut " * 11
    (whole,) = small_translator.align([text], ["Hund"])
    assert [word for _, word in whole] == [0]
    assert small_translator.align([text], ["Hund"], max_source_length=5) == [[]]


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


def test_a_dash_that_is_read_as_a_comma_leaves_the_other_words_their_links():
    read = [x.encode() for x in ("▁he", ",", "▁a", "▁dog", "</s>")]
    attention = np.eye(5, dtype="float32")
    for source in "he – a dog", "he—a dog":
        pair = source, "il, un chien"
        links = alignment.word_links(pair, ("en", "fr"), read, read, attention)
        assert links == [(0, 0), (2, 1), (3, 2)]
    # Within a word it makes two of it.
    pair = "he–a dog", "il, un chien"
    links = alignment.word_links(pair, ("en", "fr"), read, read, attention)
    assert links == [(0, 0), (0, 1), (1, 2)]


def test_a_source_with_a_mark_has_no_links(tmp_path):
    lines = ["a red dog", "ein roter Hund"] * 9
    tokenizer = Tokenizer.train(lines, 300, tmp_path / "t", TERM_SYMBOLS)
    model = Transformer(tokenizer.vocab_size, **sample_runs.SMALL_SIZES)
    sources = "a red dog", "a <term>red dog<as>rote Hund</term>", "a <as> dog"
    links = Translator(model, tokenizer).align(sources, ["ein Hund"] * 3)
    assert [len(x) for x in links] == [2, 0, 2]


def test_blank_texts_have_no_pairs(small_translator):
    assert small_translator.align(["", "dog", ""], ["", "", "Hund"]) == [[]] * 3
    blank = ["\u3000", "\u200b", "\xa0"]
    assert small_translator.align(["dog"] * 3, blank) == [[]] * 3
    assert small_translator.align([], []) == []


def test_the_export_tells_what_translations_see(served, small_translator):
    texts = ["the dog runs", "", "die grüne Wiese und die kleine Wiese laut"]
    targets = ["der Hund", "Hund", "a meadow"]

    found = served("attention", source=texts, target=targets)

    tokenizer = small_translator.tokenizer
    source, are_cut = source_ids(tokenizer, texts, 11)
    assert are_cut.numpy().tolist() == [False, False, True]
    target = tokenizer.tokenize(targets)
    expected = small_translator.id_model.attention_ids(
        source.to_tensor(PAD), target.to_tensor(PAD)
    )
    np.testing.assert_allclose(found["attention"], expected, 1e-4, 1e-5)
    for side, ids in (("source_pieces", source), ("target_pieces", target)):
        for names, row in zip(found[side], ids, strict=True):
            pieces = tokenizer.pieces(row.numpy())
            pieces += [""] * (len(names) - len(pieces))
            assert [name.decode() for name in names] == pieces
