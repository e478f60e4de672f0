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


@pytest.mark.parametrize(
    "module, message",
    [
        (keras_transformer, f"found {OLDER}; install it with"),
        (np, f"numpy .* {OLDER} is loaded"),
    ],
)
def test_elsewhere_another_version_is_told_and_nothing_installed(
    installs, monkeypatch, capsys, module, message
):
    monkeypatch.setattr(module, "__version__", OLDER)
    with pytest.raises(RuntimeError, match=message):
        run_cell()
    assert not installs and not capsys.readouterr().out
