"""Merges by chance: sentencepiece without it, the paper's algorithm with."""

import collections

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from natural_corpus import train_pieces

from keras_transformer.data import demo
from keras_transformer.data.bpe_dropout import Merges
from keras_transformer.data.tokenizer import Tokenizer

TEXT = [text for pair in demo.demo_pairs("train", "en", "de") for text in pair]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("merges") / "tokenizer.model"
    return Tokenizer.train([*TEXT, "½ … ß 漢字"] * 2, 701, path)


@pytest.fixture(scope="module")
def merges(tokenizer):
    return Merges(tokenizer.model)


def cut(merges, pieces, dropout=0.0, seed=0):
    """The pieces of every word, each a list, all from the words' pieces."""
    flat = np.concatenate([*map(np.array, pieces), np.zeros(0)]).astype(int)
    word_of = np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])
    new, of = merges.segment(
        flat, word_of, dropout, np.random.default_rng(seed)
    )
    return [new[of == word].tolist() for word in range(len(pieces))]


@given(
    st.lists(
        st.text(
            st.sampled_from("aehinrst ßäü½漢😀A.,…")
            | st.characters(codec="utf-8")
        ),
        max_size=7,
    )
)
@settings(deadline=None)
def test_without_chance_they_are_those_of_sentencepiece(tokenizer, text):
    merges = Merges(tokenizer.model)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = pieces.encode([*text, *TEXT[:3]])
    assert cut(merges, expected) == expected


def test_if_all_are_left_out_characters_and_bytes_remain(tokenizer, merges):
    pieces = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    (found,) = cut(merges, [pieces.encode("trinkt ß 😀")], dropout=1.0)
    spelled = [*"▁trinkt▁ß▁", *(f"<0x{byte:X}>" for byte in "😀".encode())]
    assert tokenizer.pieces(found) == spelled


def slowly(characters, scores, dropout, random):
    """Algorithm 1 of Provilkov et al. (2020), word for word."""
    current = list(characters)
    while True:
        possible = [
            (scores[a + b], -i, a + b)
            for i, (a, b) in enumerate(
                zip(current[:-1], current[1:], strict=True)
            )
            if a + b in scores and random.random() >= dropout
        ]
        if not possible:
            return tuple(current)
        _, place, merged = max(possible)
        current[-place : -place + 2] = [merged]


@pytest.mark.parametrize("dropout", [0.1, 0.53])
def test_segmentations_are_as_frequent_as_the_papers_algorithm_makes_them(
    tokenizer, merges, dropout
):
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    scores = {
        model.id_to_piece(i): model.get_score(i)
        for i in range(260, model.get_piece_size())
    }
    word = "▁Fahrrad"
    assert model.encode_as_pieces("Fahrrad") == [word]
    draws = 7_001
    random = np.random.default_rng(11)
    expected = collections.Counter(
        slowly(word, scores, dropout, random) for _ in range(draws)
    )
    found = collections.Counter(
        tuple(tokenizer.pieces(pieces))
        for pieces in cut(
            merges, [model.encode("Fahrrad")] * draws, dropout, seed=13
        )
    )
    assert len(expected) > 5
    for pieces in {*expected, *found}:
        # Four standard deviations of the difference of two counts.
        bound = 4 * (2 * max(expected[pieces], 4)) ** 0.5
        assert abs(found[pieces] - expected[pieces]) <= bound, pieces


def test_roles_and_a_users_own_pieces_stay_whole():
    model = train_pieces(TEXT, 401, user_defined_symbols=["<2de>"])
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    own = pieces.piece_to_id("<2de>")
    row = [pieces.unk_id(), own, *pieces.encode("trinkt")]
    (found,) = cut(Merges(model), [row], dropout=1.0)
    assert found[:2] == row[:2]
    assert "".join(map(pieces.id_to_piece, found[2:])) == "▁trinkt"
