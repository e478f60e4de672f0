"""The examples that are one short program."""

import runpy

import pytest
from programs import python
from project_table import ROOT


@pytest.mark.example
def test_the_one_that_asks_a_saved_model_prints_what_it_translates(
    exported, small_translator
):
    text = "a small dog runs"
    output = python("examples/ask_saved_model.py", exported, text).stdout
    (expected,) = small_translator.translate(
        [text], beam_size=5, length_penalty=0.9
    )
    assert output == f"{expected}\n"


@pytest.mark.example
def test_the_one_of_own_data_learns_to_translate_digits():
    main = runpy.run_path(f"{ROOT}/examples/own_data.py")["main"]
    assert main() == ["drei eins vier", "eins fünf neun"]
