"""The example that asks a SavedModel."""

import subprocess
import sys

import pytest
from project_table import ROOT


@pytest.mark.example
def test_the_example_prints_what_the_model_translates(
    exported, small_translator
):
    text = "a small dog runs"
    output = subprocess.run(
        [sys.executable, "examples/ask_saved_model.py", exported, text],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout
    (expected,) = small_translator.translate(
        [text], beam_size=5, length_penalty=0.9
    )
    assert output == f"{expected}\n"
