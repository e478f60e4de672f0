"""Hints on the next command go to a person, not into a pipe."""

import logging
import pathlib
import sys

import pytest
from verb_calls import run

from keras_transformer.commands import command_line


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


def test_an_export_is_to_be_served(run_dir, tmp_path, at_terminal, monkeypatch):
    monkeypatch.setattr(
        "keras_transformer.exporting.saved_model.write",
        lambda *_: tmp_path / "new" / "1",
    )
    assert run("export", run_dir, "--output", tmp_path / "new") == 0
    assert at_terminal() == [f"Next: keras-transformer serve {tmp_path}/new"]
