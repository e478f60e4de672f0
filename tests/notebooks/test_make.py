"""notebooks/make.py: executed whole, or refused in a sentence."""

import pathlib

import nbformat
import pytest
from nbformat import v4

from keras_transformer.config import UserError
from notebooks import make

SOURCE = """\
# %% [markdown]
# A line.

# %%
import os
import socket

print(os.listdir())
os.system("echo noise >&2")
# TCP, UDP and the question for an address.
away = ("192.0.2.7", 9)
for ask in (
    lambda: socket.create_connection(away),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(away),
    lambda: socket.getaddrinfo("www.example.org", 80),
):
    try:
        ask()
    except OSError as error:
        print(error)
with socket.create_server(("localhost", 0)) as server:
    socket.create_connection(server.getsockname()).close()

# %%
2 + 3
"""


@pytest.mark.example
def test_a_source_is_executed_in_an_empty_folder_without_network(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path
    monkeypatch.setattr(make, "FOLDER", folder)
    (folder / "7_seven.py").write_text(SOURCE)

    assert make.main([]) == 0

    path = folder / "7_seven.ipynb"
    text, first, second = nbformat.read(path, as_version=4).cells
    assert (text.cell_type, text.source) == ("markdown", "A line.")
    (output,) = first.outputs
    files, *refused = output.text.splitlines()
    assert files == "[]" and len(refused) == 3
    assert all("Notebooks run without network" in line for line in refused)
    assert second.outputs[0].data == {"text/plain": "5"}
    assert [first.execution_count, second.execution_count] == [1, 2]
    left = {left.name for left in folder.iterdir()}
    assert left == {"7_seven.py", "7_seven.ipynb"}
    before = path.read_bytes()
    path.touch()
    then = path.stat().st_mtime_ns
    assert make.main([]) == 0
    assert capsys.readouterr().out.endswith("7_seven: unchanged\n")
    assert path.stat().st_mtime_ns == then

    # A cell that fails is named, and what was there stays.
    (folder / "7_seven.py").write_text(f"{SOURCE}\n# %%\n1 / 0\n")
    assert make.main(["7_seven"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "place", [pathlib.Path.home(), make.FOLDER.parent, "standard error"]
)
def test_what_tells_of_the_machine_is_refused(place):
    outputs = [
        v4.new_output("stream", name="stdout", text=f"Wrote {place}/7.txt"),
        v4.new_output("display_data", {"text/html": f"<i>{place}/7.txt</i>"}),
    ]
    if place == "standard error":
        outputs = [v4.new_output("stream", name="stderr", text=place)]
    for output in outputs:
        cell = v4.new_code_cell("2 + 3", outputs=[output])
        with pytest.raises(UserError, match="Expected no"):
            make.check(v4.new_notebook(cells=[cell]))
