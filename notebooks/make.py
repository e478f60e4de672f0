"""Makes the notebooks: `make notebooks`, or `python notebooks/make.py`.

`NAME.py`, in jupytext's percent format, is what people edit. `NAME.ipynb`
beside it is made from it: executed in an empty folder without network, and
kept with its outputs. Those whose cells changed are made, or those that are
named: `python notebooks/make.py 1_the_paper`.
"""

import argparse
import asyncio
import os
import pathlib
import sys
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import jupytext
import nbclient
import nbformat

from keras_transformer.config import UserError
from keras_transformer.machine import files

FOLDER = pathlib.Path(__file__).resolve().parent
NAMES = "[0-9]_*.py"
OFFLINE = FOLDER / "offline"
LIMIT = 180  # Seconds for all cells of a notebook that is made.
MOST_BYTES = 1_000_000
METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
CLOSED_PORT = "http://127.0.0.1:9"


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is asked for; returns 0, or 2 where a notebook is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "notebooks",
        nargs="*",
        type=pathlib.Path,
        metavar="NAME",
        help="made in any case, such as 1_the_paper (default: what changed)",
    )
    asked = [
        FOLDER / f"{path.stem}.py" for path in parser.parse_args(argv).notebooks
    ]
    for source in asked or sorted(FOLDER.glob(NAMES)):
        if not asked and is_made(source):
            print(f"{source.stem}: unchanged")
            continue
        try:
            make(source)
        except UserError as error:
            print(f"{source.stem}: {error}", file=sys.stderr)
            return 2
        print(f"{source.stem}: made")
    return 0


def make(source: pathlib.Path) -> None:
    """Write the notebook beside its source, executed.

    Raises:
        UserError: If there is no such source, a cell fails, or what came out
            should not be kept.
    """
    if not source.is_file():
        raise UserError(
            f"Expected a notebook's source, found no {source.name} in "
            f"{source.parent}; give the name of one that is there."
        )
    notebook = read(source)
    try:
        execute(notebook)
    except nbclient.exceptions.CellExecutionError as error:
        raise UserError(f"a cell fails; correct it.\n{error}") from None
    except TimeoutError:
        raise UserError(
            f"Expected all cells to run in {LIMIT} seconds; make it smaller."
        ) from None
    notebook.metadata = nbformat.from_dict(METADATA)
    check(notebook)
    text = nbformat.writes(notebook)
    if len(text.encode()) >= MOST_BYTES:
        raise UserError(
            f"Expected less than {MOST_BYTES} bytes, received "
            f"{len(text.encode())}; draw fewer or smaller pictures."
        )
    files.write_text(source.with_suffix(".ipynb"), text + "\n")


def read(source: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook of a source, without outputs, the same every time."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata.pop("lines_to_next_cell", None)
    return notebook


def is_made(source: pathlib.Path) -> bool:
    """Whether the notebook beside a source has the source's cells."""
    path = source.with_suffix(".ipynb")
    return path.exists() and cells(nbformat.read(path, 4)) == cells(
        read(source)
    )


def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """The type and the source of every cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def execute(notebook: nbformat.NotebookNode, limit: float = LIMIT) -> None:
    """Run all cells in an empty folder, and fill in their outputs.

    Args:
        notebook: The notebook.
        limit: Seconds for all cells.

    Raises:
        CellExecutionError: If a cell fails.
        TimeoutError: If they take longer.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as settings,
    ):
        client = nbclient.NotebookClient(
            notebook,
            timeout=None,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            # What C++ writes to standard error, as TensorFlow does when it
            # is imported, does not go into the notebook.
            extra_arguments=[
                "--IPKernelApp.capture_fd_output=False",
                "--log-level=ERROR",
            ],
        )
        running = client.async_execute(cwd=folder, env=environment(settings))
        asyncio.run(_within(limit, running))


async def _within(limit: float, running: Coroutine[Any, Any, Any]) -> None:
    """Await for so many seconds at most.

    If `asyncio.wait_for` cancels nbclient, that reports a dead kernel.
    """
    task = asyncio.ensure_future(running)
    done, _ = await asyncio.wait({task}, timeout=limit)
    if not done:
        task.cancel()
        # Ends the kernel, and takes the error that nbclient makes of that.
        await asyncio.gather(task, return_exceptions=True)
        raise TimeoutError
    task.result()


def environment(settings: str) -> dict[str, str]:
    """This process's, without network and a person's own settings.

    `offline/sitecustomize.py`, which comes first on the path, refuses what
    Python opens itself. The proxies stand for programs that heed them.

    Args:
        settings: A folder for what IPython writes.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MPLBACKEND", "PYTHONSTARTUP")
    }
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {
        **own,
        **dict.fromkeys(proxies, CLOSED_PORT),
        "no_proxy": "",
        "NO_PROXY": "",
        "HF_HUB_OFFLINE": "1",
        "IPYTHONDIR": settings,
        "PYTHONPATH": os.pathsep.join([str(OFFLINE), str(FOLDER.parent)]),
    }


def check(notebook: nbformat.NotebookNode) -> None:
    """Refuse outputs that should not be kept.

    Raises:
        UserError: If one names a path of this machine, or warns.
    """
    places = {
        str(place)
        for path in (FOLDER.parent, tempfile.gettempdir(), pathlib.Path.home())
        for place in (path, pathlib.Path(path).resolve())
    } - {"/"}
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                raise UserError(
                    "Expected nothing on standard error, received from cell "
                    f"{number}: {output.text}"
                )
            for place in places:
                if place in _text(output):
                    raise UserError(
                        f"Expected no path of this machine, found {place} in "
                        f"the output of cell {number}."
                    )


def _text(output: Mapping) -> str:
    """All that an output shows as text."""
    return "\n".join(
        [output.get("text", ""), *map(str, output.get("data", {}).values())]
    )


if __name__ == "__main__":
    sys.exit(main())
