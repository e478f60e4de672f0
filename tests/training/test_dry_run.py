import re
import shutil

import paper
import pytest
from sample_runs import digit_arguments, train_on_digits

import keras_transformer as kt
from keras_transformer.presets import PRESETS
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import dry_run


def figure(output, label):
    rows = re.findall(r"(?m)^  (\S.*?)  +(\S+)(?:  .*)?$", output)
    (found,) = (x for name, x in rows if name == label)
    return float(found.replace(",", ""))


def test_a_dry_run_tells_size_tokens_memory_and_time_and_writes_nothing(
    corpus, tmp_path, capsys
):
    argv = digit_arguments(corpus, tmp_path / "run", "--dry-run")
    assert train_on_digits(*argv) == 0
    output = capsys.readouterr().out
    # As `digit_arguments` says: d_k and d_v are 34 / 2.
    vocabulary = int(figure(output, "vocabulary"))
    assert 260 < vocabulary <= 300
    count = paper.parameter_count(vocabulary, 1, 34, 67, 2, 17, 17)
    assert figure(output, "parameters") == count
    assert 100 < figure(output, "source tokens") <= 256
    assert 100 < figure(output, "target tokens") <= 256
    assert 0 < figure(output, "padding") < 50
    assert 0.1 < figure(output, "peak memory") < 50
    seconds = figure(output, "a usual batch")
    assert seconds > 0 and figure(output, "the longest one") > 0
    hours = seconds * PRESETS["demo"].training.steps / 3600
    assert figure(output, "hours") == pytest.approx(hours, rel=0.02)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_a_run_takes_its_vocabulary_and_leaves_it_alone(
    small_run, tmp_path, capsys, monkeypatch
):
    # Of another text than the digits.
    begun = shutil.copytree(small_run, tmp_path / "begun")
    monkeypatch.setattr(dry_run, "HEAD_PAIRS", 211)
    before = {p: p.stat().st_mtime_ns for p in begun.rglob("*")}
    more = ("--dry-run", "--strategy", "mirrored")
    assert train_on_digits("--run-dir", begun, *more) == 0
    output = capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in begun.rglob("*")} == before
    vocabulary = RunConfig.load(begun).model.vocab_size
    assert figure(output, "vocabulary") == vocabulary
    # It refuses what the run would.
    argv = ("--run-dir", begun, "--dry-run", "--seed", "2")
    assert train_on_digits(*argv) == 2
    told = capsys.readouterr()
    assert "seed = 1, this command says 2" in told.err and told.out == ""


def test_python_tells_the_same_of_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "HEAD_PAIRS", 40)
    told = kt.dry_run(
        tmp_path / "run",
        corpus={"train": [("one two", "eins zwei")] * 50, "val": [("a", "b")]},
        recipe="small-corpus",
        vocab_size=270,
        num_layers=1,
        d_model=34,
        num_heads=2,
        accumulate=2,
    )
    assert "tiny on memory: " in told and "micro-batches: 2" in told
    assert figure(told, "vocabulary") <= 270
    # All of the text is looked through, and its head is planned.
    assert "The text, 50 pairs\n" in told and figure(told, "repeated") == 49
    assert "dropped, of the first 40" in told
    assert not list(tmp_path.iterdir())
