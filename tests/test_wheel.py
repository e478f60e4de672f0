"""The wheel goes the whole way where there is no clone.

It lies in a folder that comes before all other packages, and those are of the
environment that runs the tests, so that nothing is downloaded.
"""

import shutil
import zipfile

import pytest
from programs import python
from project_table import ROOT
from sample_runs import write_digits

import keras_transformer

pytestmark = pytest.mark.slow

PACKAGE = ROOT / "keras_transformer"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that the clone stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        PACKAGE,
        folder / PACKAGE.name,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    build = "-m", "build", "--wheel", "--no-isolation", "."
    python(*build, cwd=folder, PYTHONPATH="")
    (path,) = (folder / "dist").iterdir()
    return path


def test_the_wheel_holds_every_file_of_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names
    others = {name.partition("/")[0] for name in names} - {PACKAGE.name}
    (information,) = others
    assert f"{information}/licenses/LICENSE" in names
    assert wheel.name.split("-")[1] == keras_transformer.__version__


# Says of a process where its package was.
TELL = """
import atexit, os, sys

@atexit.register
def tell():
    if package := sys.modules.get("keras_transformer"):
        print("from", os.path.realpath(package.__file__), file=sys.stderr)
"""


def test_its_command_trains_evaluates_and_exports(wheel, tmp_path):
    home, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_digits(elsewhere, train=211, val=23, test=17)
    install = "-m", "pip", "install", "--no-deps", "--no-index"
    python(*install, "--target", home, wheel, cwd=tmp_path, PYTHONPATH="")
    (home / "sitecustomize.py").write_text(TELL)
    said = ""
    for words in (
        "train --preset demo --corpus . --num-layers 1 --d-model 32 --ffn-dim "
        "32 --vocab-size 310 --batch-tokens 512 --steps 4 --validation-steps 4",
        "evaluate",
        "export --output exported",
    ):
        command = home / "bin" / "keras-transformer", *words.split()
        where = dict(cwd=elsewhere, PYTHONPATH=str(home))
        done = python(*command, "--run-dir", "run", **where)
        assert f"from {home.resolve()}/" in done.stderr
        said += done.stdout
    assert "BLEU" in said and "|tok:13a|" in said
    assert (elsewhere / "exported" / "1" / "saved_model.pb").exists()
    assert (elsewhere / "exported" / "batching_parameters.txt").exists()
