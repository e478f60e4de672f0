"""The whole way, through the command lines, on a corpus that it can learn."""

import json
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf
from sample_runs import ENGLISH, GERMAN, write_digits

from keras_transformer.__main__ import main

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = "seven two nine"
TARGET = "sieben zwei neun"


def run(*argv):
    return main([str(word) for word in argv])


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run that has learnt the ten words."""
    folder = tmp_path_factory.mktemp("system")
    corpus = write_digits(folder, train=5_003, val=53, test=101)
    code = run(
        "train",
        *("--preset", "demo", "--corpus", corpus, "--vocab-size", "310"),
        *("--run-dir", folder / "run", "--batch-tokens", "512"),
        *("--d-model", "64", "--key-dim", "16", "--value-dim", "16"),
        *("--steps", "1400", "--warmup-steps", "200"),
        *("--learning-rate-scale", "0.25"),
        *("--checkpoint-steps", "50", "--validation-steps", "700"),
    )
    assert code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def saved_model(run_dir, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "digits"
    assert run("export", "--run-dir", run_dir, "--output", output) == 0
    return output / "1"


def test_a_file_is_translated_line_by_line(run_dir, tmp_path):
    (tmp_path / "in").write_text(f"{SOURCE}\n\n{ENGLISH[4]} {ENGLISH[1]}\n")
    code = run(
        *("translate", "--run-dir", run_dir),
        *("--input", tmp_path / "in", "--output", tmp_path / "out"),
    )
    assert code == 0
    expected = f"{TARGET}\n\n{GERMAN[4]} {GERMAN[1]}\n"
    assert (tmp_path / "out").read_text() == expected


def test_unseen_numbers_are_translated_right(run_dir, capsys):
    assert run("evaluate", "--run-dir", run_dir) == 0
    output = capsys.readouterr().out
    assert "|tok:13a|" in output and "prepared:moses-de" in output
    report = json.loads((run_dir / "evaluation" / "test.json").read_text())
    assert report["sentences"] == 101
    assert len(report["checkpoints"]) == 5
    assert report["scores"]["bleu"]["value"] > 90
    translations = run_dir / "evaluation" / "test.de.txt"
    references = run_dir.parent / "test.de"
    pairs = zip(
        translations.read_text().splitlines(),
        references.read_text().splitlines(),
        strict=True,
    )
    assert sum(one == other for one, other in pairs) >= 91


def test_the_export_translates_too(saved_model):
    signature = tf.saved_model.load(saved_model).signatures["serving_default"]
    result = signature(text=tf.constant([SOURCE, ""]))
    assert [t.decode() for t in result["translation"].numpy()] == [TARGET, ""]


def test_the_example_asks_the_export(saved_model):
    output = subprocess.run(
        [sys.executable, "examples/ask_saved_model.py", saved_model, SOURCE],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout
    assert output == TARGET + "\n"


def test_a_pipe_of_verbs_carries_nothing_but_results(run_dir):
    result = subprocess.run(
        [
            *(sys.executable, "-m", "keras_transformer", "translate"),
            *("--run-dir", run_dir, "--beam-size", "2", "--n-best", "2"),
        ],
        input=SOURCE + "\n",
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    first, second = (line.split("\t") for line in result.stdout.splitlines())
    assert first[0] == second[0] == "1"
    assert first[2] == TARGET
    assert float(first[1]) > float(second[1])
