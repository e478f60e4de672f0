import json
import os
import re
import subprocess
import sys

import pytest
from project_table import ROOT

PROGRAM = ROOT / "tests" / "support" / "train_by_xla.py"


@pytest.mark.slow
def test_xla_compiles_the_step_once_for_each_shape_of_the_plan(tmp_path):
    finished = subprocess.run(
        [sys.executable, PROGRAM, "211"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": ".",
            "XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text",
        },
    )
    told = json.loads(finished.stdout)
    assert told["seen"] == told["shapes"]
    assert 2 < len(told["shapes"]) < 12
    compiled = {
        path.name.split(".")[0]
        for path in tmp_path.iterdir()
        if "gradients" in path.name
    }
    assert len(compiled) == len(told["shapes"])
    lines = re.findall(r"XLA: compiled .*", finished.stderr)
    assert len(lines) == len(compiled)
    shape = ", ".join(map(str, told["shapes"][0]))
    (first,) = (line for line in lines if f"({shape})" in line)
    assert re.search(rf"; \d+ of {len(compiled)} shapes, \d+ s in all", first)
