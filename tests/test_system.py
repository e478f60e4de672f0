"""The whole way, by the verbs, on a corpus that a small model can learn."""

import json
import shutil

import pytest
from sample_runs import ENGLISH, GERMAN, digit_corpus, digit_run
from verb_calls import run

pytestmark = pytest.mark.stands_for("the way from text to translations")

SOURCE = "seven two nine"
TARGET = "sieben zwei neun"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run that has learnt the ten words by the verb `train`."""
    return shutil.copytree(digit_run(), tmp_path_factory.mktemp("a") / "run")


def test_a_file_is_translated_line_by_line(run_dir, tmp_path):
    (tmp_path / "in").write_text(f"{SOURCE}\n\n{ENGLISH[4]} {ENGLISH[1]}\n")
    files = "--input", tmp_path / "in", "--output", tmp_path / "out"
    assert run("translate", run_dir, *files) == 0
    expected = f"{TARGET}\n\n{GERMAN[4]} {GERMAN[1]}\n"
    assert (tmp_path / "out").read_text() == expected


def test_unseen_numbers_are_translated_right(run_dir, capsys):
    assert run("evaluate", run_dir) == 0
    output = capsys.readouterr().out
    assert "|tok:13a|" in output and "prepared:moses-de" in output
    folder = run_dir / "evaluation" / "test"
    report = json.loads((folder / "scores.json").read_text())
    assert report["sentences"] == 127
    assert len(report["checkpoints"]) == 5
    assert report["scores"]["bleu"]["value"] > 80
    pairs = zip(
        (folder / "translation.txt").read_text().splitlines(),
        digit_corpus()["test"][1],
        strict=True,
    )
    assert sum(one == other for one, other in pairs) >= 100
