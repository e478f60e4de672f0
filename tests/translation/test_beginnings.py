"""Translations that begin with a text, which may end inside a word."""

import numpy as np
import pytest
import sample_runs
import tensorflow as tf

from keras_transformer.config import Sampling
from keras_transformer.data import demo
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.translation.beginnings import Beginnings

PAD, BOS, EOS = 0, 2, 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("beginnings") / "tokenizer.model"
    texts = [x for pair in demo.demo_pairs("test", "en", "de") for x in pair]
    return Tokenizer.train([*texts, "<s> <0x41> ▁ é 漢"] * 2, 601, path)


@pytest.mark.parametrize("ends", ["", " ", "\t "])
def test_a_range_holds_the_pieces_that_begin_with_all_that_is_left(
    tokenizer, ends
):
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    beginnings = Beginnings(tokenizer)
    texts = ["dreihundertz", "Das Bu", "das", "", "é漢Ж", "x<", "Uhr. " * 97]

    found = beginnings.tokenize(tf.constant([x + ends for x in texts]))

    some = 0
    for text, rows in zip(texts, found.to_list(), strict=True):
        (ids,) = tokenizer.tokenize([text]).to_list()
        spelled = ids[:-1]
        if (ends or text.endswith(" ")) and text:
            spelled.append(names.index("▁"))
        assert [token for token, _, _ in rows] == spelled
        for i, (_, first, last) in enumerate(rows):
            left = "".join(names[token] for token in spelled[i:])
            fits = [
                piece_id
                for piece_id, name in enumerate(names)
                if name.startswith(left) and not name.startswith("<")
            ]
            # Where a space has to come, the text may also end.
            fits += [EOS] if left == "▁" else []
            is_in = (beginnings.places >= first) & (beginnings.places <= last)
            if not left.startswith("<"):
                assert np.flatnonzero(is_in).tolist() == sorted(fits)
            some += len(fits) > 1
    assert some >= 3


def test_a_search_leaves_the_prefix_by_its_own_tokens_or_by_others():
    # Tokens 4 to 8 after BOS, by likelihood; a row of 5 has its own.
    table = np.log([[1e-9, 1e-9, 1e-9, 0.1, 0.3, 0.05, 0.25, 0.1, 0.2]] * 9)

    def step(ids, position, state):
        return tf.gather(tf.constant(table, tf.float32), ids), state

    # First 4, or one at places 6 and 7; then 5, or one at place 8.
    prefix = tf.constant([[[4, 6, 7], [5, 8, 8]], [[PAD, 0, 0]] * 2])
    places = tf.constant([0, 1, 2, 3, 8, 4, 7, 6, 5], tf.int64)
    found = beam_search(
        step,
        tf.zeros([2, 4]),
        max_lengths=tf.constant([2, 2]),
        prefix=prefix,
        places=places,
        beam_size=4,
        n_best=4,
        length_penalty=0.0,
    )
    # By exhaustive search over all pairs that the prefix allows.
    probs = np.exp(table[0])
    allowed = [(4, 5), (4, 4), *((x, y) for x in (6, 7) for y in range(4, 9))]
    allowed += [(6, EOS), (7, EOS)]
    best = sorted(allowed, key=lambda pair: -probs[list(pair)].prod())[:3]
    ids = [tuple(map(int, row)) for row in found.ids[0].numpy()[:3]]
    assert [probs[list(x)].prod() for x in ids] == pytest.approx(
        [probs[list(x)].prod() for x in best]
    )
    assert set(ids) <= set(allowed)
    # The other row is free, and ends or writes the likeliest.
    assert tuple(found.ids[1, 0].numpy()) in {(EOS, PAD), (4, 4)}


@pytest.mark.parametrize("sampling", [None, Sampling(seed=7, temperature=0.2)])
def test_a_translation_goes_on_inside_a_word(sampling):
    translator = sample_runs.digit_translator()
    sources, targets = (x[:61] for x in sample_runs.digit_corpus()["test"])
    for cut in (1, 2, 5, 7):
        prefixes = [target[:cut] for target in targets]
        found = translator.translate(
            sources, prefixes=prefixes, sampling=sampling
        )
        right = sum(map(str.__eq__, found, targets))
        assert right > 50
        assert all(map(str.startswith, found, map(str.strip, prefixes)))


def test_a_space_at_the_end_keeps_the_last_word():
    translator = sample_runs.digit_translator()
    (inside,) = translator.translate(["seven"], prefixes=["sie"])
    assert inside == "sieben"
    whole = translator.translate(["seven"], prefixes=["sie "], n_best=3)
    assert all(x.text == "sie" or x.text[:4] == "sie " for x in whole[0])
