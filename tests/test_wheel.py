"""The wheel goes the whole way where there is no clone.

It lies in a folder that comes before all other packages, and those are of the
environment that runs the tests, so that nothing is downloaded.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from sample_runs import write_digits

import keras_transformer

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_transformer"


def run(*command, cwd, home="", **options):
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True,
        text=True,
        **options,
    )


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
    built = run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "."),
        cwd=folder,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (folder / "dist").iterdir()
    return path


TELL = """
import atexit, os, sys

@atexit.register
def tell():
    if package := sys.modules.get("keras_transformer"):
        print("from", os.path.realpath(package.__file__), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def home(wheel, tmp_path_factory):
    """A folder that has the wheel; a process says where its package was."""
    folder = tmp_path_factory.mktemp("installed")
    run(
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index"),
        *("--target", folder, wheel),
        cwd=folder,
        check=True,
    )
    (folder / "sitecustomize.py").write_text(TELL)
    return folder


@pytest.fixture(scope="module")
def trained(home, tmp_path_factory):
    """A run that the command has trained, in a folder of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    write_digits(folder, train=211, val=23, test=17)
    done = run(
        *(home / "bin" / "keras-transformer", "train", "--preset", "demo"),
        *("--corpus", ".", "--run-dir", "run", "--num-layers", "1"),
        *("--d-model", "32", "--ffn-dim", "32", "--vocab-size", "310"),
        *("--batch-tokens", "512", "--steps", "4", "--validation-steps", "4"),
        cwd=folder,
        home=home,
    )
    assert done.returncode == 0, done.stderr
    assert f"from {home.resolve()}/" in done.stderr
    return folder / "run"


VERBS = {
    "evaluate": (),
    "translate": ("--max-length", "5"),
    "score": ("--source", "test.en", "--target", "test.de"),
    "export": ("--output", "exported"),
}
PROGRAM = """
import json, sys
from keras_transformer.__main__ import main

for verb, flags in json.loads(sys.argv[1]).items():
    assert main([verb, "--run-dir", "run", *flags]) == 0, verb
    print("END OF VERB", flush=True)
"""


@pytest.fixture(scope="module")
def said(home, trained):
    """What each verb says of that run: all in one process, for one import."""
    done = run(
        *(sys.executable, "-c", PROGRAM, json.dumps(VERBS)),
        cwd=trained.parent,
        home=home,
        input="one two\n\nthree\n",
    )
    assert done.returncode == 0, done.stderr
    assert f"from {home.resolve()}/" in done.stderr
    outputs = done.stdout.split("END OF VERB\n")[:-1]
    return dict(zip(VERBS, outputs, strict=True))


def test_the_wheel_holds_every_file_of_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in PACKAGE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert path.relative_to(ROOT).as_posix() in names
    others = {name.partition("/")[0] for name in names} - {PACKAGE.name}
    (information,) = others
    assert f"{information}/licenses/LICENSE" in names
    assert wheel.name.split("-")[1] == keras_transformer.__version__


def test_its_run_is_evaluated_translates_scores_and_is_exported(said, trained):
    assert "BLEU" in said["evaluate"] and "|tok:13a|" in said["evaluate"]
    first, empty, second = said["translate"].split("\n")[:-1]
    assert empty == ""
    scores = [float(line) for line in said["score"].splitlines()]
    assert len(scores) == 17 and max(scores) < 0
    exported = trained.parent / "exported"
    assert (exported / "1" / "saved_model.pb").exists()
    assert (exported / "models.config").exists()
