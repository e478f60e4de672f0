"""The notebooks as people have them, and run again."""

import nbformat

from notebooks import make

SOURCES = sorted(make.FOLDER.glob(make.NAMES))


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


def assert_runs(name):
    """Run a notebook as `make notebooks` does, offline.

    Each has a file of tests, so that they run on all cores, and more time: a
    machine that tests may be slow or busy.
    """
    source = make.FOLDER / f"{name}.py"
    notebook = make.read(source)
    make.execute(notebook, limit=10 * make.LIMIT)
    assert kinds(notebook) == kinds(stored(source))
