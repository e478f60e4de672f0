"""The example of a `fit` on your own data."""

import pathlib
import runpy

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "own_data.py"


@pytest.mark.example
def test_the_example_learns_to_translate_digits():
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main() == ["drei eins vier", "eins fünf neun"]
