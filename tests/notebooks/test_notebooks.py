"""Notebooks are what their sources give, and hold nothing of a machine."""

import itertools
import pathlib
import re

import nbformat
import pytest
from notebook_runs import SOURCES, code_cells, stored
from project_table import PROJECT

import keras_transformer
from notebooks import make

REPOSITORY = PROJECT["urls"]["Repository"]
RELEASE = keras_transformer.__version__

each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def setup_cell(source):
    return code_cells(stored(source))[0].source


@each
def test_a_notebook_is_what_its_source_gives(source):
    assert make.cells(stored(source)) == make.cells(make.read(source))


@each
def test_a_test_runs_it_and_the_index_names_it(source):
    test = pathlib.Path(__file__).with_name(f"test_{source.name}")
    assert f'assert_runs("{source.stem}")' in test.read_text()
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
    assert 'f"git+{REPOSITORY}@v{RELEASE}"' in first
    assert set(extras.split(",")) < set(PROJECT["optional-dependencies"])
