"""Strings that stay one piece, from their file to the vocabulary."""

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.config import UserError
from keras_transformer.data.pieces import read_symbols
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.training.request import understand

SYMBOLS = ("<2fr>", "▁(NP", "▁)NP", "▁(S", "▁)S", ",", '"x,y"', "ﬁ¼")
SENTENCES = [
    "(S (NP the dog )NP sees (NP the fish )NP )S",
    "<2fr> the dog, the cat",
    "<2fr>the cat sees ﬁ¼ fish",
] * 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("symbols") / "tokenizer.model"
    return Tokenizer.train(SENTENCES, 307, path, SYMBOLS)


def pieces(tokenizer, text):
    (ids,) = tokenizer.tokenize([text]).to_list()
    return tokenizer.pieces(ids[:-1])


def test_symbols_follow_the_four_ids_and_are_never_normalised(tokenizer):
    assert tuple(tokenizer.pieces(range(4, 4 + len(SYMBOLS)))) == SYMBOLS
    # NFKC would make "fi1⁄4" of it.
    assert "ﬁ¼" in pieces(tokenizer, "the ﬁ¼")
    assert "ﬁ" not in "".join(pieces(tokenizer, "ﬁsh"))


def test_a_symbol_is_one_piece_wherever_it_stands(tokenizer):
    assert pieces(tokenizer, "<2fr> the") == ["▁", "<2fr>", "▁the"]
    found = pieces(tokenizer, "the<2fr><2fr>,")
    assert found == ["▁the", "<2fr>", "<2fr>", ","]
    # It may have the space before it in its piece.
    found = pieces(tokenizer, "(S (NP the )NP )S")
    assert found == "▁(S ▁(NP ▁the ▁)NP ▁)S".split()
    # And then it is one piece only where a word begins.
    assert "▁(S" not in pieces(tokenizer, "the(S")


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from([*SYMBOLS[:1], "(NP", ")NP", *SYMBOLS[5:], "the", "q"]),
        max_size=9,
    ),
    st.sampled_from(["", " ", "  "]),
)
def test_text_with_symbols_survives_in_the_graph_as_in_the_library(
    tokenizer, words, between
):
    text = between.join(words)
    (ids,) = tokenizer.tokenize([text]).to_list()
    oracle = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    assert ids == [*oracle.encode(text), 3]
    (back,) = tokenizer.detokenize([ids]).numpy()
    assert back.decode() == " ".join(text.split())


def test_a_file_has_a_symbol_a_line(tmp_path):
    path = tmp_path / "symbols.txt"
    path.write_bytes("▁(S\r\n)S\n日".encode())
    assert read_symbols(path) == ("▁(S", ")S", "日")
    assert read_symbols(["▁(S", ")S", "▁(S"]) == ("▁(S", ")S")
    with pytest.raises(UserError, match="Expected a file that can be read as"):
        read_symbols(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content, named",
    [
        ("", "`symbols`"),
        ("(S\n\n)S", "line 2"),
        ("(S\na b", "'a b'"),
        ("a\u200bb", "invisible characters in line 1"),
        ("<s>", "<s> in line 1"),
        ("▁cafe\u0301", "under NFC after the ▁ in line 1"),
    ],
)
def test_symbols_that_cannot_be_are_named(tmp_path, content, named):
    path = tmp_path / "symbols.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=named):
        read_symbols(path)
    if content:
        with pytest.raises(UserError, match=named):
            Tokenizer.train(SENTENCES, 400, tmp_path / "t", content.split("\n"))


def test_symbols_do_not_go_with_a_vocabulary_made_elsewhere():
    with pytest.raises(UserError, match="`symbols`|`tokenizer`"):
        understand(corpus="demo", symbols=["(S"], tokenizer="somewhere")
    run = understand(corpus="demo", symbols=["(S"], run_dir="nowhere").run
    assert run.symbols == ("(S",)
