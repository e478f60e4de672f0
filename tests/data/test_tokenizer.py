"""The vocabulary: round trips, the four ids, and what bad input says."""

import itertools
import logging

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from natural_corpus import train_pieces

from keras_transformer import config
from keras_transformer.data import learning
from keras_transformer.data.learning import Sample
from keras_transformer.data.tokenizer import Tokenizer

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Zwölf große Boxkämpfer jagen Viktor quer über den Sylter Deich.",
    "The dog sleeps under the old bridge; the fox is quick.",
    "Der Hund schläft unter der alten Brücke, der Fuchs ist schnell.",
]
PAD, UNK, BOS, EOS = 0, 1, 2, 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    Tokenizer.train(SENTENCES, 317, path)
    return path


@pytest.fixture(scope="module")
def tokenizer(path):
    return Tokenizer.load(path)


def round_trip(tokenizer, text):
    (result,) = tokenizer.detokenize(tokenizer.target.tokenize([text])).numpy()
    return result.decode()


def test_four_ids_have_roles_and_there_are_as_many_as_asked(tokenizer, path):
    oracle = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = [oracle.pad_id(), oracle.unk_id(), oracle.bos_id(), oracle.eos_id()]
    assert ids == [PAD, UNK, BOS, EOS]
    assert tokenizer.vocab_size == oracle.get_piece_size() == 317


def test_tokens_end_with_one_end_token_and_have_no_start_token(tokenizer):
    ids = tokenizer.tokenize(SENTENCES)
    assert ids.dtype == tf.int32
    for sentence in ids.to_list():
        assert sentence[-1] == EOS
        assert not {PAD, UNK, BOS, EOS} & set(sentence[:-1])
    assert tokenizer.tokenize(["", " \n\t", "\ufeff"]).to_list() == [[EOS]] * 3


def test_a_graph_reads_and_writes_text_after_a_new_seed(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices(SENTENCES).batch(3)
    ids = dataset.map(tokenizer.target.tokenize)
    written = ids.map(tokenizer.detokenize).unbatch()
    tf.random.set_seed(7)
    assert [x.decode() for x in written.as_numpy_iterator()] == SENTENCES


def test_invalid_utf_8_reads_as_replacement_characters(tokenizer):
    ids = tokenizer.tokenize(tf.constant([b"\xff\xfe bad", b"good"]))
    bad, good = tokenizer.detokenize(ids).numpy()
    assert bad.decode() == "\ufffd\ufffd bad"
    assert good == b"good"


def test_what_ends_inside_a_character_ends_before_it(tokenizer):
    (ids,) = tokenizer.tokenize(["dog \U0001f98a"]).to_list()
    cut = [ids[: -1 - missing] for missing in (1, 2, 3)]  # The end goes, too.
    texts = tokenizer.detokenize(tf.ragged.constant(cut)).numpy()
    assert texts.tolist() == [b"dog"] * 3


def test_text_ends_at_the_first_end_token(tokenizer):
    dog, fox = tokenizer.tokenize(["dog", "fox"]).to_list()
    ids = [BOS, PAD, *dog, *fox, PAD, PAD]
    assert tokenizer.detokenize([ids]).numpy().tolist() == [b"dog"]
    # Without one it is all of it.
    assert tokenizer.detokenize([[*dog[:-1], *fox]]).numpy() == [b"dog fox"]


def test_the_same_sentences_give_the_same_file(path, tmp_path):
    again = tmp_path / "again.model"
    Tokenizer.train(iter(SENTENCES), 317, again)
    assert again.read_bytes() == path.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no disk")])
def test_what_ends_the_reading_of_the_lines_is_what_the_caller_gets(
    tmp_path, monkeypatch, error
):
    def lines(_):
        yield from ["one two"] * 7
        # First their characters are counted, then pieces are learnt.
        if next(times) == 2:
            raise error

    times = itertools.count(1)
    monkeypatch.setattr(Sample, "lines", lines)
    with pytest.raises(type(error)) as caught:
        Tokenizer.train(["one two"] * 11, 277, tmp_path / "vocabulary")
    assert caught.value is error
    assert not [*tmp_path.iterdir()]


def test_a_size_that_the_text_cannot_fill_gives_way(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "keras_transformer"):
        found = Tokenizer.train(["ab ab"], 1000, tmp_path / "t").vocab_size
    # Beyond 260 at most the six substrings of "▁ab".
    assert 261 <= found <= 266
    assert f"The vocabulary has {found} pieces instead of 1000" in caplog.text


@pytest.mark.parametrize("symbols", [(), ("<2fr>",)])
def test_more_characters_than_a_size_can_hold_leave_the_rarest_to_bytes(
    symbols, tmp_path, caplog
):
    caplog.set_level(logging.INFO, "keras_transformer")
    han = [chr(0x4E00 + i) for i in range(9_000)]
    lines = ["".join(han[i:]) for i in range(0, 9_000, 500)]
    tokenizer = Tokenizer.train(lines, 1_009, tmp_path / "t.model", symbols)
    assert tokenizer.vocab_size == 1_009
    # Of 85,500 characters 42 may lack: 8,958 letters in a third of the pieces.
    assert str(261 + 3 * 8_958) in caplog.text
    # The last ones are the most frequent.
    (ids,) = tokenizer.tokenize([han[-1] + han[0]]).to_list()
    spelled = "<0xE4> <0xB8> <0x80>".split()
    assert tokenizer.pieces(ids) == ["▁", han[-1], *spelled, "</s>"]
    assert round_trip(tokenizer, "".join(han)) == "".join(han)


def test_a_character_below_one_in_100_000_is_learnt_as_bytes(tmp_path):
    # 100,000 characters with spaces: "é" is one of them once, "😀" twice, and
    # so is a no-break space, which needs more, since it shows nothing.
    line = "abcd " * 20
    text = [line] * 997 + [f"é{line[1:]}"]
    text += [f"{x}{line[1:-1]}{x}" for x in "😀\u00a0"]
    assert sum(map(len, text)) == 100_000
    for more, has_piece in ("", True), ("b", False):
        tokenizer = Tokenizer.train([*text, more], 300, tmp_path / "t")
        pieces = "".join(tokenizer.pieces(range(tokenizer.vocab_size)))
        assert ("é" in pieces) == has_piece
        assert "😀" in pieces and "\u00a0" not in pieces
        assert round_trip(tokenizer, "é 😀") == "é 😀"


@pytest.mark.parametrize("most, has_piece", [(9_990, True), (9_980, False)])
def test_letters_of_a_large_script_are_counted_among_themselves(
    most, has_piece, tmp_path
):
    # Of 10,000 in a million characters 9,995 are enough; fewer are no language.
    text = ["召" * most + "舞" * 6 + "弁" * 4, *["abcd" * 25] * 9_900]
    tokenizer = Tokenizer.train(text, 300, tmp_path / "t")
    pieces = "".join(tokenizer.pieces(range(tokenizer.vocab_size)))
    assert ("舞" in pieces) == has_piece and "弁" not in pieces


@pytest.mark.parametrize(
    "sentences, size, message",
    [
        # The space has a piece beside the 260, and a character needs one too.
        (SENTENCES, 261, "received 261"),
        (["a\ud83d b"], 300, r"'\\ud83d', in place 0"),
        ([], 300, "received none"),
    ],
)
def test_what_makes_no_vocabulary_fails(sentences, size, message, tmp_path):
    with pytest.raises(config.UserError, match=message):
        Tokenizer.train(sentences, size, tmp_path / "t.model")
    assert not list(tmp_path.iterdir())


# With sentencepiece's own ids for the four roles.
FOREIGN = train_pieces(SENTENCES, 60, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "Expected a vocabulary at .*t.model"),
        (b"not a model", "t.model is not a vocabulary"),
        (FOREIGN, r"Received: ids \(-1, 0, 1, 2\)"),
    ],
)
def test_another_file_is_refused(content, message, tmp_path):
    path = tmp_path / "t.model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(config.UserError, match=message):
        Tokenizer.load(path)


def test_few_lines_are_all_there_in_the_form_of_the_vocabulary(tmp_path):
    lines = ["one", "", " two\r", "drei\u2028vier\x0b", "e\u0301 \ufb01\ufa19"]
    text = Sample(tmp_path / "lines.txt", [*lines, "five\nsix"])
    # A text of several lines counts as several.
    kept = [*lines[:4], "\xe9 \ufb01\ufa19", "five", "six"]
    assert list(text.lines()) == kept


def test_of_many_lines_a_sample_is_there_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "MAX_TRAINING_SENTENCES", 1009)
    text = Sample(tmp_path / "lines.txt", map(str, range(100_003)))
    numbers = list(map(int, text.lines()))
    assert 900 < len(numbers) < 2200
    assert numbers == sorted(set(numbers))
    # The file holds a few samples, not all.
    assert len((tmp_path / "lines.txt").read_text().split()) < 1009 * 16
    # The mean of n draws has n^-1/2 of the spread of one, 0.29 of the range.
    middle = np.mean(numbers) / 100_003
    assert abs(middle - 0.5) < 5 * 0.29 / 1009**0.5
