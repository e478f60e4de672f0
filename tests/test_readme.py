"""The README, and the page on Python, run as they are printed."""

import os
import re
import subprocess
import sys

import pytest
from programs import python
from project_table import ROOT
from sample_runs import write_digits

README = (ROOT / "README.md").read_text("utf-8")
PYTHON = (ROOT / "docs" / "start" / "python.md").read_text("utf-8")


def blocks(language="", text=README):
    """The fenced blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [block for of_block, block in found if of_block == language]


def test_the_first_page_is_short():
    assert README.count("\n") <= 150


@pytest.mark.example
def test_the_python_examples_run_word_by_word(tmp_path):
    program = "\n".join(blocks("python", PYTHON))
    (example,) = blocks("python")
    assert example in program
    all_that_people_see = dict(TF_CPP_MIN_LOG_LEVEL="0")
    done = python(
        *("-c", program), cwd=tmp_path, check=False, **all_that_people_see
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # TensorFlow says this of a vocabulary that a seed has unloaded.
    assert "NOT_FOUND" not in done.stderr
    for name in ("first", "parts"):
        assert (tmp_path / "exported" / name / "1" / "saved_model.pb").exists()
    assert "'step': 800" in done.stdout
    assert "|tok:13a|" in done.stdout
    assert "['dreihundertzwei']" in done.stdout


@pytest.mark.example
def test_the_commands_for_ones_own_text_run_one_after_the_other(tmp_path):
    (commands,) = [x for x in blocks() if "--corpus my-text" in x]
    lines = commands.splitlines()
    # The environment is there, and a test has no 45 minutes.
    assert lines[0] == ". .venv/bin/activate"
    script = "\n".join(lines[1:]).replace("--minutes 45", "--steps 3")
    assert script.count("--steps 3") == 1
    command = tmp_path / "bin" / "keras-transformer"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m keras_transformer "$@"\n'
    )
    command.chmod(0o755)
    programs = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "my-text").mkdir()
    write_digits(tmp_path / "my-text", train=211, val=23, test=17)
    for path in (tmp_path / "my-text").glob("*.de"):
        path.rename(path.with_suffix(".fr"))

    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "|tok:13a|" in done.stdout
    assert done.stdout.splitlines()[-1] == "exported/mine/1"
    assert (tmp_path / "test.fr").read_bytes().count(b"\n") == 17
