"""Hostile requests are all answered, and leave no trace."""

import os
import pathlib
import re
import subprocess
import sys

import hostile_requests
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def besiege(export, *arguments):
    """`benchmarks/load.py` in a process of its own."""
    return subprocess.run(
        [
            *(sys.executable, ROOT / "benchmarks" / "load.py"),
            *("--export", export, "--minutes", "0", "--pause", "0.1"),
            *("--clients", "4", "--longest", str(2**16), *arguments),
        ],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        # Otherwise the memory that a request leaves would drown in what oneDNN
        # keeps for every new shape and malloc for every thread.
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "MALLOC_ARENA_MAX": "1",
        },
    )


@pytest.mark.slow
def test_hostile_requests_are_answered_beside_clients_and_leave_no_memory(
    exported,
):
    found = besiege(exported, "--requests", "300", "--warm-up", "100")

    assert found.returncode == 0, found.stdout
    assert "not answered as they should be: 0\n" in found.stdout
    # Rows of every signature, and clients in the meantime.
    rows = re.search("hostile rows: (.*)", found.stdout)[1].split(", ")
    assert len(rows) == 5 and not [x for x in rows if x.endswith(" 0")]
    assert "hostile requests: 300;" in found.stdout
    assert re.search(r"friendly requests: \d\d", found.stdout)


class Forgetful:
    """A row less than asked for, of one signature."""

    signatures = dict.fromkeys(["n_best", "score", "serving_default"])

    def __call__(self, signature, text):
        lost = signature == "n_best" and len(text) > 1
        return {"score": np.zeros(len(text) - lost)}

    def everywhere(self, signature, texts):
        return self(signature, texts)


def test_a_siege_notices_an_answer_that_lacks_a_row():
    siege = hostile_requests.Siege(Forgetful(), ["a", "b"])
    siege.run(
        [(name, {"text": ["a"] * 3}) for name in Forgetful.signatures],
        attackers=2,
        clients=0,
    )

    (failure,) = siege.failures
    assert failure.startswith("n_best of 3 hostile rows: AssertionError")
    assert siege.rows == {"n_best": 3, "score": 3, "serving_default": 3}
