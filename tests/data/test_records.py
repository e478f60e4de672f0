"""Token records: nothing lost, nothing half-written, reused when the same."""

import itertools
import re

import numpy as np
import pytest

from keras_transformer import config
from keras_transformer.data.records import FILES, TokenisedCorpus

PAD, EOS = 0, 3


class WordTokenizer:
    """Gives every word its number, for ids that the test can spell out."""

    def __init__(self, vocab_size=97):
        self.vocab_size, self.target = vocab_size, self

    def tokenize_many(self, texts):
        rows = [[*map(int, text.split()), EOS] for text in texts]
        lengths = np.array([len(row) for row in rows])
        return np.array(list(itertools.chain(*rows)), np.int32), lengths


def build(pairs, directory, words=97, **options):
    tokenizer = WordTokenizer(words)
    return TokenisedCorpus.build(pairs, tokenizer, directory, **options)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("keras_transformer.data.records.CHUNK", 2)


def test_records_hold_the_tokens_of_every_pair(tmp_path, small_chunks):
    pairs = [(f"{i} 5 7", f"{i + 41} " * (i % 4)) for i in range(11, 22)]
    records = build(pairs, tmp_path / "records")
    assert len(records) == 11
    for row, (source, target) in enumerate(pairs):
        ids = records.source.padded(np.array([row]), 5)
        assert ids.tolist() == [[*map(int, source.split()), EOS, PAD]]
        ids = records.target.padded(np.array([row]), 4)
        words = [*map(int, target.split()), EOS]
        assert ids.tolist() == [words + [PAD] * (4 - len(words))]
        assert records.target.lengths[row] == len(words)
    assert records.source.lengths.tolist() == [4] * 11
    # Ids of more than 16 bits are kept.
    records = build([("70000", "65536")], tmp_path / "large", words=70_001)
    for side, expected in ((records.source, 70_000), (records.target, 65_536)):
        assert side.padded(np.array([0]), 2).tolist() == [[expected, EOS]]


def test_records_in_memory_are_those_of_the_files(tmp_path):
    pairs = [("11 13 17", "5"), ("", "7 11"), ("19", "")]
    records = build(pairs, tmp_path / "records")
    rows = np.array([2, -1, 0, 1, 0])
    expected = [
        [19, EOS, PAD, PAD],
        [PAD] * 4,
        [11, 13, 17, EOS],
        [EOS, PAD, PAD, PAD],
        [11, 13, 17, EOS],
    ]
    assert records.source.padded(rows, 4).tolist() == expected
    # A length below that of a sentence cuts it.
    cut = [row[:2] for row in expected]
    assert records.source.padded(rows, 2).tolist() == cut
    memory = TokenisedCorpus.in_memory(pairs, WordTokenizer())
    assert memory.source.padded(rows, 4).tolist() == expected
    assert memory.source.padded(rows, 2).tolist() == cut


def test_long_and_empty_training_pairs_are_dropped_and_counted(tmp_path):
    pairs = [
        ("5 5 5 5", "7"),  # Five tokens with the end token: just fits.
        ("5 5 5 5 5", "7"),
        ("5", "7 7 7 7 7 7"),
        ("", "7"),
        ("5", ""),
        ("", ""),
        ("5", "7"),
    ]
    records = build(pairs, tmp_path / "records", max_length=5)
    assert (len(records), records.dropped, records.empty) == (2, 2, 3)
    assert records.source.lengths.tolist() == [5, 2]
    # Without a maximum every pair stays.
    records = build([("5 " * 997, "7"), *pairs], tmp_path / "all")
    assert (len(records), records.dropped, records.empty) == (8, 0, 0)


def test_records_are_replaced_whole_or_not_at_all(tmp_path, small_chunks):
    def interrupted():
        yield from [("11", "13")] * 5
        raise KeyboardInterrupt

    build([("5", "7 7"), ("", "7")], tmp_path / "r", max_length=9)
    with pytest.raises(KeyboardInterrupt):
        build(interrupted(), tmp_path / "r")
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    records = TokenisedCorpus.load(tmp_path / "r")
    assert (records.source.lengths.tolist(), records.empty) == ([2], 1)
    build([("5 5", "7")] * 2, tmp_path / "r")
    records = TokenisedCorpus.load(tmp_path / "r")
    assert records.source.lengths.tolist() == [3, 3]


def test_a_directory_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(config.UserError, match="free place"):
        build([("5", "7")], tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_no_pair_left_is_an_error_and_leaves_nothing(tmp_path):
    with pytest.raises(config.UserError, match="at most 3 tokens"):
        build([("", "7"), ("5 5 5", "7")], tmp_path / "r", max_length=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*FILES, "records.json"])
def test_records_with_a_flipped_bit_or_without_a_piece_are_told(tmp_path, name):
    path = tmp_path / "r" / name
    build([("5 6", "7")], path.parent, max_length=5)
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:1],
    ):
        path.write_bytes(damaged)
        where = re.escape(str(path.parent))
        with pytest.raises(config.UserError, match=where):
            TokenisedCorpus.load(path.parent)
