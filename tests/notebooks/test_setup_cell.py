"""What the first cell of every notebook does, in Colab and elsewhere."""

import importlib
import importlib.metadata
import subprocess
import sys
import types

import numpy as np
import pytest
from notebook_runs import SOURCES, code_cells, stored
from project_table import PROJECT

import keras_transformer

CELL = code_cells(stored(SOURCES[0]))[0].source
OLDER = "0.0.7"


@pytest.fixture
def installs(monkeypatch):
    """The commands that were run, which do nothing."""
    importlib.import_module("tensorflow")  # It runs commands of its own.
    commands = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, check: commands.append(command)
    )
    return commands


@pytest.fixture
def colab(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "google.colab", types.ModuleType("google.colab")
    )


def run_cell():
    exec(compile(CELL, "first cell", "exec"), {})


def test_with_the_release_installed_it_says_what_it_found(installs, capsys):
    run_cell()
    assert not installs
    found = capsys.readouterr().out
    assert keras_transformer.__version__ in found
    for name in ("tensorflow", "keras"):
        assert importlib.metadata.version(name) in found
    assert "GPU: " in found


def test_elsewhere_a_missing_release_is_told_not_installed(
    installs, monkeypatch
):
    monkeypatch.setattr(keras_transformer, "__version__", OLDER)
    with pytest.raises(RuntimeError, match=f"found {OLDER}; install it with"):
        run_cell()
    assert not installs


def test_in_colab_it_installs_the_release_and_keeps_tensorflow(
    installs, colab, monkeypatch, capsys
):
    # None stands for a module that cannot be found.
    monkeypatch.setitem(sys.modules, "keras_transformer", None)
    run_cell()
    ((_, _, _, install, _, package, keep),) = installs
    assert install == "install"
    assert package.startswith(f"{PROJECT['name']}[")
    assert package.endswith(f"@v{keras_transformer.__version__}")
    assert keep == f"tensorflow=={importlib.metadata.version('tensorflow')}"
    assert "TensorFlow" in capsys.readouterr().out


def test_in_colab_with_another_release_loaded_it_asks_for_a_restart(
    installs, colab, monkeypatch, capsys
):
    monkeypatch.setattr(keras_transformer, "__version__", OLDER)
    with pytest.raises(RuntimeError, match=f"{OLDER} is loaded; restart"):
        run_cell()
    assert len(installs) == 1
    assert not capsys.readouterr().out


def test_what_was_replaced_while_it_was_loaded_asks_for_a_restart(
    installs, monkeypatch, capsys
):
    monkeypatch.setattr(np, "__version__", OLDER)
    with pytest.raises(RuntimeError, match=f"numpy .* {OLDER} is loaded"):
        run_cell()
    assert not capsys.readouterr().out
