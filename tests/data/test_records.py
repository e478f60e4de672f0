"""Token records: nothing lost, nothing half-written, reused when the same."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import config
from keras_transformer.data import records as records_module
from keras_transformer.data.records import TokenisedCorpus

PAD, EOS = 0, 3


class WordTokenizer:
    """Gives every word its number, for ids that the test can spell out."""

    def __init__(self, vocab_size=97):
        self.vocab_size = vocab_size

    def tokenize(self, texts):
        rows = [[*map(int, text.split()), EOS] for text in texts]
        return tf.ragged.constant(rows, dtype=tf.int32)


def build(pairs, directory, **options):
    return TokenisedCorpus.build(pairs, WordTokenizer(), directory, **options)


def test_records_hold_the_tokens_of_every_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(records_module, "CHUNK", 3)
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


def test_ids_beyond_16_bits_are_kept(tmp_path):
    tokenizer = WordTokenizer(vocab_size=70_001)
    records = TokenisedCorpus.build(
        [("70000", "65536")], tokenizer, tmp_path / "r"
    )
    row = np.array([0])
    assert records.source.padded(row, 2).tolist() == [[70_000, EOS]]
    assert records.target.padded(row, 2).tolist() == [[65_536, EOS]]


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


def test_without_a_maximum_every_pair_stays(tmp_path):
    pairs = [("5 " * 997, "7"), ("", "7"), ("5", "")]
    records = build(pairs, tmp_path / "records")
    assert (len(records), records.dropped, records.empty) == (3, 0, 0)
    assert records.source_lengths.tolist() == [998, 1, 2]


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


def test_a_build_cut_short_leaves_no_records(tmp_path):
    def interrupted():
        yield "5", "7"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(interrupted(), tmp_path / "records")
    assert not list(tmp_path.iterdir())


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


def test_progress_counts_the_pairs_read(tmp_path, monkeypatch):
    monkeypatch.setattr(records_module, "CHUNK", 3)
    seen = []
    pairs = [("5", "7"), ("", "")] * 4
    build(pairs, tmp_path / "r", max_length=5, progress=seen.append)
    assert seen == [3, 6, 8]


def test_the_header_can_be_read_by_eye(tmp_path):
    build([("5", "7"), ("", "")], tmp_path / "r", max_length=5, fingerprint="a")
    assert json.loads((tmp_path / "r" / "records.json").read_text()) == {
        "fingerprint": "a",
        "max_length": 5,
        "dtype": "uint16",
        "dropped": 0,
        "empty": 1,
        # In bytes: 2 for an id, 4 for a length.
        "sizes": {
            name: (tmp_path / "r" / name).stat().st_size
            for name in (
                "source.ids",
                "source.lengths",
                "target.ids",
                "target.lengths",
            )
        },
    }


def test_records_that_lost_a_piece_are_made_again(tmp_path):
    build([("5 6", "7")], tmp_path / "r", max_length=5)
    path = tmp_path / "r" / "target.ids"
    whole = path.read_bytes()
    path.write_bytes(whole[:1])
    build([("5 6", "7")], tmp_path / "r", max_length=5)
    assert path.read_bytes() == whole
