"""The whole way, by the verbs, on a corpus that a small model can learn."""

import json

import pytest
import tensorflow as tf
from sample_runs import ENGLISH, GERMAN, write_digits

from keras_transformer.__main__ import main

pytestmark = pytest.mark.stands_for("the way from text to a SavedModel")

SOURCE = "seven two nine"
TARGET = "sieben zwei neun"


def run(*argv):
    return main([str(word) for word in argv])


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run that has learnt the ten words."""
    folder = tmp_path_factory.mktemp("system")
    corpus = write_digits(folder, train=5_003, val=53, test=101)
    words = """
        train --preset demo --vocab-size 310 --batch-tokens 512 --num-layers 1
        --d-model 64 --ffn-dim 128 --key-dim 16 --value-dim 16 --dropout 0
        --steps 600 --warmup-steps 100 --learning-rate-scale 0.25
        --checkpoint-every 50 --validation-steps 600
    """.split()
    assert run(*words, "--corpus", corpus, "--run-dir", folder / "run") == 0
    return folder / "run"


def test_a_file_is_translated_line_by_line(run_dir, tmp_path):
    (tmp_path / "in").write_text(f"{SOURCE}\n\n{ENGLISH[4]} {ENGLISH[1]}\n")
    files = "--input", tmp_path / "in", "--output", tmp_path / "out"
    assert run("translate", "--run-dir", run_dir, *files) == 0
    expected = f"{TARGET}\n\n{GERMAN[4]} {GERMAN[1]}\n"
    assert (tmp_path / "out").read_text() == expected


def test_unseen_numbers_are_translated_right(run_dir, capsys):
    assert run("evaluate", "--run-dir", run_dir) == 0
    output = capsys.readouterr().out
    assert "|tok:13a|" in output and "prepared:moses-de" in output
    folder = run_dir / "evaluation" / "test"
    report = json.loads((folder / "scores.json").read_text())
    assert report["sentences"] == 101
    assert len(report["checkpoints"]) == 5
    assert report["scores"]["bleu"]["value"] > 80
    pairs = zip(
        (folder / "translation.txt").read_text().splitlines(),
        (run_dir.parent / "test.de").read_text().splitlines(),
        strict=True,
    )
    assert sum(one == other for one, other in pairs) >= 75


def test_the_export_translates_too(run_dir, tmp_path):
    assert run("export", "--run-dir", run_dir, "--output", tmp_path) == 0
    loaded = tf.saved_model.load(tmp_path / "1")
    result = loaded.signatures["serving_default"](
        text=tf.constant([SOURCE, ""])
    )
    assert [t.decode() for t in result["translation"].numpy()] == [TARGET, ""]
