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


def test_there_are_notebooks_for_fifteen_minutes_in_all():
    assert [path.name for path in SOURCES][0] == "1_the_paper.py"
    assert len(SOURCES) * make.LIMIT <= 15 * 60


@each
def test_a_notebook_is_what_its_source_gives(source):
    assert make.cells(stored(source)) == make.cells(make.read(source))


@each
def test_a_test_runs_it_and_the_index_names_it(source):
    test = pathlib.Path(__file__).with_name(f"test_{source.name}")
    assert f'assert_runs("{source.stem}")' in test.read_text()
    index = (make.FOLDER / "README.md").read_text()
    assert f"]({source.stem}.ipynb)" in index


@pytest.mark.parametrize(
    ("source", "following"),
    list(itertools.pairwise(SOURCES)),
    ids=lambda path: path.stem,
)
def test_a_notebook_ends_with_a_link_to_the_next(source, following):
    end = stored(source).cells[-1]
    assert end.cell_type == "markdown"
    assert f"]({following.stem}.ipynb)" in end.source.replace("\n", " ")


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
def test_exercises_are_numbered_from_one(source):
    texts = [
        cell.source
        for cell in stored(source).cells
        if cell.cell_type == "markdown"
    ]
    exercises = re.findall(
        r"^\*\*(?:Exercise )?(\d)\.\*\*", "\n".join(texts), re.MULTILINE
    )
    solutions = "".join(texts).count("<details>")
    assert exercises == [str(n) for n in range(1, solutions + 1)]


@each
def test_it_was_run_once_from_the_first_cell_to_the_last(source):
    cells = code_cells(stored(source))
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1))


@each
def test_no_cell_failed_or_wrote_to_standard_error(source):
    for cell in code_cells(stored(source)):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr"


@each
def test_it_names_no_path_of_a_machine_and_no_time(source):
    text = source.with_suffix(".ipynb").read_text("utf-8")
    text = text.replace(r"\n", "\n")
    assert not re.search(r"(?<![\w/.:+])/(home|root|tmp|usr|opt|Users)/", text)
    assert not re.search(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", text)
    assert not re.search(r"\b\d\d:\d\d:\d\d\b", text)  # As in a log.
    assert " at 0x" not in text
    notebook = stored(source)
    assert notebook.metadata == {
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        assert "execution" not in cell.metadata


@each
def test_it_is_a_valid_file_below_a_million_bytes(source):
    assert source.with_suffix(".ipynb").stat().st_size < 1_000_000
    nbformat.validate(stored(source))


@each
def test_the_badge_opens_the_copy_of_this_release_in_colab(source):
    head = stored(source).cells[0]
    assert head.cell_type == "markdown"
    on_github = REPOSITORY.removeprefix("https://github.com/")
    assert (
        "(https://colab.research.google.com/github/"
        f"{on_github}/blob/v{RELEASE}/notebooks/{source.stem}.ipynb)"
    ) in head.source
    assert "Not run in Colab itself yet" in head.source


@each
def test_the_first_cell_installs_this_release(source):
    first = setup_cell(source)
    assert f'RELEASE = "{RELEASE}"\n' in first
    assert f'REPOSITORY = "{REPOSITORY}"\n' in first
    extras = re.search(rf"{PROJECT['name']}\[(.*?)\] @ ", first)[1]
    assert 'f"git+{REPOSITORY}@v{RELEASE}"' in first
    assert set(extras.split(",")) < set(PROJECT["optional-dependencies"])


@each
def test_all_notebooks_have_the_same_first_cell(source):
    assert setup_cell(source) == setup_cell(SOURCES[0])
