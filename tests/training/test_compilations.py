import json
import re

import pytest
from programs import run_program


@pytest.mark.slow
def test_xla_compiles_the_step_once_for_each_shape_of_the_plan(tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    told, log = run_program("train_by_xla.py", 211, XLA_FLAGS=flags)
    told = json.loads(told)
    assert told["seen"] == told["shapes"]
    assert 2 < len(told["shapes"]) < 12
    compiled = {
        path.name.split(".")[0]
        for path in tmp_path.iterdir()
        if "gradients" in path.name
    }
    assert len(compiled) == len(told["shapes"])
    lines = re.findall(r"XLA: compiled .*", log)
    assert len(lines) == len(compiled)
    shape = ", ".join(map(str, told["shapes"][0]))
    (first,) = (line for line in lines if f"({shape})" in line)
    assert re.search(rf"; \d+ of {len(compiled)} shapes, \d+ s in all", first)
