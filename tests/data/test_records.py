"""Token records: nothing lost, nothing half-written, reused when the same."""

import itertools
import random
import shutil

import numpy as np
import pytest

from keras_transformer import config
from keras_transformer.data.records import TokenisedCorpus

PAD, EOS = 0, 3
FILES = ("source.ids", "source.lengths", "target.ids", "target.lengths")


class WordTokenizer:
    """Gives every word its number, for ids that the test can spell out."""

    def __init__(self, vocab_size=97):
        self.vocab_size = vocab_size

    @property
    def target(self):
        return self

    def tokenize_many(self, texts):
        rows = [[*map(int, text.split()), EOS] for text in texts]
        lengths = np.array([len(row) for row in rows])
        return np.array(list(itertools.chain(*rows)), np.int32), lengths


def build(pairs, directory, words=97, **options):
    tokenizer = WordTokenizer(words)
    return TokenisedCorpus.build(pairs, tokenizer, directory, **options)


@pytest.fixture
def small_chunks(monkeypatch):
    """Two pairs a chunk, and three chunks until a note."""
    monkeypatch.setattr("keras_transformer.data.records.CHUNK", 2)
    monkeypatch.setattr("keras_transformer.data.records.CHUNKS_NOTED", 3)


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
        assert records.target_lengths[row] == len(words)
    assert records.source_lengths.tolist() == [4] * 11
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
    assert records.source.padded(rows, 2).tolist() == [
        row[:2] for row in expected
    ]
    memory = records.in_memory()
    shutil.rmtree(tmp_path / "records")
    for length in (4, 2):
        np.testing.assert_array_equal(
            memory.source.padded(rows, length),
            records.source.padded(rows, length),
        )


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
    assert records.source_lengths.tolist() == [5, 2]
    # Without a maximum every pair stays.
    records = build([("5 " * 997, "7"), *pairs], tmp_path / "all")
    assert (len(records), records.dropped, records.empty) == (8, 0, 0)
    assert records.source_lengths[[0, 4, 5]].tolist() == [998, 1, 2]


def test_records_of_the_same_fingerprint_are_reused(tmp_path):
    def untouchable():
        raise AssertionError("read again")
        yield

    pairs = [("5", "7 7"), ("", "7")]
    first = build(pairs, tmp_path / "r", max_length=9, fingerprint="a")
    again = build(untouchable(), tmp_path / "r", max_length=9, fingerprint="a")
    assert again.source_lengths.tolist() == first.source_lengths.tolist() == [2]
    assert again.empty == 1


@pytest.mark.parametrize(
    "change", [{"fingerprint": "b"}, {"max_length": 13}, {"max_length": None}]
)
def test_records_of_anything_else_are_replaced(tmp_path, change):
    options = {"fingerprint": "a", "max_length": 9}
    build([("5", "7")], tmp_path / "r", **options)
    records = build([("5 5", "7")] * 2, tmp_path / "r", **{**options, **change})
    assert records.source_lengths.tolist() == [3, 3]


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("read", [0, 1, 2, 5, 6, 11, 12, 17, 23])
def test_a_build_cut_short_goes_on_from_its_last_note(
    tmp_path, monkeypatch, small_chunks, read
):
    # Every fifth pair is too long, every seventh is without text.
    pairs = [
        ("5 " * (11 if i % 5 == 0 else i % 3 + 1), "" if i % 7 == 0 else "7")
        for i in range(23)
    ]

    def interrupted():
        yield from pairs[:read]
        raise Killed

    options = {"max_length": 10, "fingerprint": "a"}
    whole = build(pairs, tmp_path / "whole", **options)
    with pytest.raises(Killed):
        build(interrupted(), tmp_path / "records", **options)
    assert not (tmp_path / "records").exists()

    tokenized = []
    texts_of = WordTokenizer.tokenize_many

    def tokenize_many(self, texts):
        tokenized.extend(texts)
        return texts_of(self, texts)

    monkeypatch.setattr(WordTokenizer, "tokenize_many", tokenize_many)
    records = build(pairs, tmp_path / "records", **options)
    # Two sides; six pairs from note to note.
    assert len(tokenized) == 2 * (23 - read // 6 * 6)
    assert (records.dropped, records.empty) == (whole.dropped, whole.empty)
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert names == {path.name for path in (tmp_path / "records").iterdir()}
    for name in names:
        expected = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "records" / name).read_bytes() == expected
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("change", ["text", "journal", "ids", "short"])
def test_what_is_left_of_another_or_a_broken_build_is_made_anew(
    tmp_path, small_chunks, change
):
    def interrupted():
        yield from [("5 6", "7")] * 7
        raise Killed

    with pytest.raises(Killed):
        build(interrupted(), tmp_path / "r", fingerprint="a")
    left = tmp_path / "r.unfinished"
    if change == "journal":
        (left / "journal.json").write_text("{")
    elif change == "ids":
        (left / "source.ids").write_bytes(
            (left / "source.ids").read_bytes().replace(b"\5", b"\6")
        )
    elif change == "short":
        (left / "target.lengths").write_bytes(b"")
    fingerprint = "b" if change == "text" else "a"
    pairs = [("11", "13")] * 3
    records = build(pairs, tmp_path / "r", fingerprint=fingerprint)
    assert records.source.ids.tolist() == [11, EOS] * 3
    assert records.target.ids.tolist() == [13, EOS] * 3


def test_a_directory_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(config.UserError, match="Expected token records in"):
        build([("5", "7")], tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_no_pair_left_is_an_error_and_leaves_nothing(tmp_path):
    message = "received 2, none with text and at most 3 tokens on both sides"
    with pytest.raises(config.UserError, match=message):
        build([("", "7"), ("5 5 5", "7")], tmp_path / "r", max_length=3)
    assert not list(tmp_path.iterdir())


def test_progress_counts_the_pairs_read(tmp_path, small_chunks):
    seen = []
    pairs = [("5", "7"), ("", ""), ("5", "7")]
    build(pairs, tmp_path / "r", max_length=5, progress=seen.append)
    assert seen == [2, 3]


@pytest.mark.parametrize("name", FILES)
def test_records_with_a_flipped_bit_or_without_a_piece_are_made_again(
    tmp_path, name
):
    path = tmp_path / "r" / name
    build([("5 6", "7")], path.parent, max_length=5)
    whole = path.read_bytes()
    for damaged in (bytes([whole[0] ^ 4]) + whole[1:], whole[:1]):
        path.write_bytes(damaged)
        build([("5 6", "7")], path.parent, max_length=5)
        assert path.read_bytes() == whole


def test_no_flipped_bit_of_the_header_is_believed(tmp_path):
    build([("5 6", "7"), ("", "7")], tmp_path / "r", max_length=5)
    path = tmp_path / "r" / "records.json"
    whole = path.read_bytes()
    refused = 0
    for bit in random.Random(0).sample(range(8 * len(whole)), 300):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            records = TokenisedCorpus.load(tmp_path / "r")
        except config.UserError:
            refused += 1
        else:  # A space, perhaps.
            assert (len(records), records.dropped, records.empty) == (1, 0, 1)
    assert refused > 150
