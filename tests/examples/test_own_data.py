"""The example of a `fit` on your own data."""

import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "own_data.py"


@pytest.mark.slow
def test_the_example_learns_to_translate_digits():
    spec = importlib.util.spec_from_file_location("own_data", SCRIPT)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main() == ["drei eins vier", "eins fünf neun"]
