"""The drawn pictures are those that their programs draw."""

import pathlib
import runpy

PICTURES = pathlib.Path(__file__).parents[2] / "pictures"


def test_the_architecture_is_drawn_by_its_program():
    program = runpy.run_path(str(PICTURES / "architecture.py"))
    kept = (PICTURES / "architecture.svg").read_text("utf-8")
    assert program["draw"]() == kept
