"""Notebooks are what their sources give, and their first cell installs us."""

import importlib
import importlib.metadata
import itertools
import re
import subprocess
import sys
import types

import nbformat
import numpy as np
import pytest
from project_table import PROJECT

import keras_transformer
from notebooks import make

REPOSITORY = PROJECT["urls"]["Repository"]
RELEASE = keras_transformer.__version__
OLDER = "0.0.7"

SOURCES = sorted(make.FOLDER.glob(make.NAMES))
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def stored(source):
    """The notebook that is kept beside a source."""
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(notebook):
    """For each code cell, what kinds of outputs it has."""
    return [
        [
            (output.output_type, *sorted(output.get("data", [])))
            for output in cell.outputs
            # For example the first import of Matplotlib on a machine.
            if output.get("name") != "stderr"
        ]
        for cell in code_cells(notebook)
    ]


@pytest.mark.example
@each
def test_every_cell_runs_and_gives_what_the_stored_one_shows(source):
    notebook = make.read(source)
    # A machine that tests may be slow or busy.
    make.execute(notebook, limit=10 * make.LIMIT)
    assert kinds(notebook) == kinds(stored(source))


def setup_cell(source):
    return code_cells(stored(source))[0].source


@each
def test_a_notebook_is_what_its_source_gives(source):
    assert make.cells(stored(source)) == make.cells(make.read(source))


@each
def test_the_index_names_it(source):
    index = (make.FOLDER / "README.md").read_text()
    assert f"]({source.stem}.ipynb)" in index


@each
def test_a_folded_cell_checks_each_solution_and_runs_its_code(source):
    """A solution must show exactly what ran."""
    solutions = 0
    for cell, check in itertools.pairwise(stored(source).cells):
        if "<details>" not in cell.source:
            continue
        opened = cell.source.count("<details><summary>Solution</summary>\n\n")
        assert opened == cell.source.count("\n\n</details>")
        solutions += opened
        assert check.metadata == {
            "jupyter": {"source_hidden": True},  # Folded in JupyterLab.
            "tags": ["hide-input"],  # And on the site.
        }
        assert "assert " in check.source
        for shown in re.findall(
            "```python\n(.*?)\n```", cell.source, re.DOTALL
        ):
            assert shown in check.source
    assert solutions >= 3


@each
def test_it_was_run_once_from_the_first_cell_to_the_last(source):
    cells = code_cells(stored(source))
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    for output in itertools.chain(*(cell.outputs for cell in cells)):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
    assert source.with_suffix(".ipynb").stat().st_size < 1_000_000
    nbformat.validate(stored(source))


@each
def test_the_first_cell_installs_this_release(source):
    first = setup_cell(source)
    assert first == setup_cell(SOURCES[0])
    assert f'RELEASE = "{RELEASE}"\n' in first
    assert f'REPOSITORY = "{REPOSITORY}"\n' in first
    extras = re.search(rf"{PROJECT['name']}\[(.*?)\] @ ", first)[1]
    assert ' @ git+{REPOSITORY}@v{RELEASE}"' in first
    assert set(extras.split(",")) < set(PROJECT["optional-dependencies"])


@pytest.fixture
def installs(monkeypatch):
    """The commands that were run, which do nothing."""
    importlib.import_module("tensorflow")  # It runs commands of its own.
    commands = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, check: commands.append(command)
    )
    return commands


def run_cell():
    exec(compile(setup_cell(SOURCES[0]), "first cell", "exec"), {})


def test_in_colab_it_installs_the_release_and_keeps_tensorflow(
    installs, monkeypatch, capsys
):
    colab = types.ModuleType("google.colab")
    monkeypatch.setitem(sys.modules, "google.colab", colab)
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
