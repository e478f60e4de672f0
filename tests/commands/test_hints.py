"""Hints on the next command go to a person, not into a pipe."""

import logging
import pathlib
import sys
import types

import pytest
from verb_calls import replace_translator, run, write_lines

from keras_transformer.commands import command_line
from keras_transformer.importing import run_directory
from keras_transformer.run import Run
from keras_transformer.translation import evaluation
from keras_transformer.translation.translator import Translator


@pytest.fixture
def at_terminal(monkeypatch, caplog):
    """Lets standard output be a terminal; returns the hints so far."""
    caplog.set_level(logging.INFO, "keras_transformer")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return lambda: [x for x in caplog.messages if x.startswith("Next: ")]


def test_a_hint_is_a_command_that_a_shell_takes(at_terminal):
    command_line.say_next("serve", pathlib.Path("my exports"))
    assert at_terminal() == ["Next: keras-transformer serve 'my exports'"]


def test_no_hint_goes_beside_results_in_a_pipe(caplog, capsys):
    caplog.set_level(logging.INFO, "keras_transformer")
    command_line.say_next("serve", "exported")
    assert not caplog.messages
    assert capsys.readouterr().out == ""


def test_verbs_of_a_run_say_what_comes_next(
    run_dir, source_file, tmp_path, at_terminal, monkeypatch
):
    with monkeypatch.context() as patch:
        replace_translator(patch)
        assert run("translate", run_dir, source_file) == 0
    of_run = f"--run-dir {run_dir}"
    assert at_terminal() == [f"Next: keras-transformer view {of_run} TEXT"]

    page = types.SimpleNamespace(to_html=lambda: "")
    monkeypatch.setattr(Translator, "explain", lambda *_, **options: page)
    output = ("--output", tmp_path / "page.html")
    assert run("view", run_dir, "a dog", *output) == 0
    assert at_terminal()[1:] == [f"Next: keras-transformer serve {of_run}"]

    target = tmp_path / "target.de"
    write_lines(target, source_file.read_text("utf-8").split("\n")[:-1])
    texts = ("--source", source_file, "--target", target)
    assert run("score", run_dir, *texts) == 0
    assert at_terminal()[2:] == [f"Next: keras-transformer evaluate {of_run}"]

    bleu = evaluation.Score("BLEU", 7, "nrefs:1|tok:zh|smooth:exp")
    folder = tmp_path / "test"
    folder.mkdir()
    (folder / "reference.txt").touch()
    found = types.SimpleNamespace(scores={}, bleu=bleu, folder=folder)
    monkeypatch.setattr(Run, "evaluate", lambda *_, **options: found)
    assert run("evaluate", run_dir) == 0
    assert at_terminal()[3:] == [
        f"Next: sacrebleu {folder}/reference.txt -i "
        f"RUN/evaluation/test/translation.txt {folder}/translation.txt "
        "--tokenize zh --metrics bleu chrf --paired-bs --format text"
    ]


def test_an_export_is_to_be_served(run_dir, tmp_path, at_terminal, monkeypatch):
    monkeypatch.setattr(
        "keras_transformer.exporting.saved_model.write",
        lambda *_: tmp_path / "new" / "1",
    )
    assert run("export", run_dir, "--output", tmp_path / "new") == 0
    assert at_terminal() == [f"Next: keras-transformer serve {tmp_path}/new"]


def test_what_was_imported_is_to_translate(tmp_path, at_terminal, monkeypatch):
    path = tmp_path / "run"
    monkeypatch.setattr(run_directory, "import_run", lambda *_: path)
    assert run("import", path, "--from", tmp_path) == 0
    assert at_terminal() == [
        f"Next: keras-transformer translate --run-dir {path} FILE"
    ]
