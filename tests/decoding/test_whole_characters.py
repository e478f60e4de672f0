"""Where pieces stand for bytes, what is written are whole characters."""

import codecs

import numpy as np
import pytest
import tensorflow as tf
from simple_search import (
    EOS,
    as_hypotheses,
    assert_same,
    every_hypothesis,
    plain_beam_search,
)
from test_beam_search import TreeModel

from keras_transformer.config import Sampling, Search
from keras_transformer.decoding.beam_search import search_by
from keras_transformer.decoding.candidates import Rules
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.whole_characters import byte_table, may_follow

# After the special ids a word, and the pieces of some bytes of ä, ∂ and €.
BYTES = {5: 0xC3, 6: 0xA4, 7: 0xE2, 8: 0x82}
VOCAB = 9
BYTE_OF = np.array([BYTES.get(token, 256) for token in range(VOCAB)])


def reads_on(written):
    """Whether bytes are the beginning of a text in UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(written)
    except UnicodeDecodeError:
        return False
    return True


def begins_text(tokens):
    """Whether Python may read on after these; a word stands for a space."""
    return reads_on(bytes(BYTES.get(token, 0x20) for token in tokens))


def rules_of(**search):
    return Rules(Search(**search), (1,), byte_of=tf.constant(BYTE_OF))


def searched(model, limits, **search):
    start = model.state(search["beam_size"])
    rules = rules_of(**search)
    return search_by(rules, model.step, start, max_lengths=limits)[0]


@pytest.mark.parametrize("beam_size, plain", [(625, False), (3, True)])
def test_it_finds_what_a_search_over_texts_in_utf8_finds(beam_size, plain):
    model = TreeModel(seed=5, batch=3, vocab=VOCAB, depth=5, spread=4.0)
    found = searched(model, [5, 4, 2], beam_size=beam_size, n_best=3)
    for sentence, limit in enumerate([5, 4, 2]):
        how = dict(banned_ids=(1,), keeps=begins_text)
        if plain:
            best = plain_beam_search(model, sentence, limit, 3, 0.6, 3, **how)
        else:
            best = every_hypothesis(model, sentence, limit, 0.6, **how)
        assert_same(as_hypotheses(found, sentence), best[:3])


def test_draws_are_of_whole_characters():
    model = TreeModel(seed=7, batch=11, vocab=VOCAB, depth=5, spread=0.1)
    drawn = sample(
        rules_of(sampling=Sampling(), n_best=31, beam_size=31),
        model.step,
        model.state(31),
        max_lengths=tf.fill([11], 5),
        seeds=tf.random.stateless_uniform([11, 2], [1, 2], 0, 99, tf.int32),
    )
    texts = drawn.ids.numpy().reshape(-1, drawn.ids.shape[-1])
    assert all(begins_text(ids[ids > EOS]) for ids in texts)
    assert any(set(ids) & {5, 7} for ids in texts)


# After nothing, after each kind of first byte, and within and after characters.
BEGINNINGS = """
    c3 df e0 e1 ed ef f0 f1 f4 41
    c3a4 e282 ed9f e282ac f09f f48f f09f98 f09f9880
""".split()


@pytest.mark.parametrize("begun", ["", *BEGINNINGS])
def test_bytes_may_come_where_python_reads_on(begun):
    begun = bytes.fromhex(begun)
    # The start token is 256, and every byte is its own token.
    ids = tf.constant([[[256, *begun]]], tf.int64)
    byte_of = tf.range(257, dtype=tf.int64)
    allowed = may_follow(byte_of, ids, tf.constant(len(begun)))[0, 0].numpy()
    expected = [reads_on(begun + bytes([byte])) for byte in range(256)]
    assert allowed[:256].tolist() == expected
    assert allowed[256] == reads_on(begun + b" ")


def test_a_vocabulary_knows_its_bytes():
    assert byte_table((), 7) is None
    table = byte_table(range(4, 260), 263)
    assert table[[3, 4, 259, 260]].tolist() == [256, 0, 255, 256]
