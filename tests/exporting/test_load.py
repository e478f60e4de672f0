"""Hostile requests are all answered, and leave no trace."""

import json
import os
import pathlib
import subprocess
import sys

import hostile_requests
import numpy as np
import pytest
from sample_runs import WORDS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.stands_for("hostile input")
def test_clients_get_their_own_answers_beside_hostile_requests(served):
    siege = hostile_requests.Siege(served, WORDS[:3])
    hostile = hostile_requests.requests(served, 20, seed=3, longest=1_000)
    siege.run(hostile, attackers=2, clients=4)
    assert siege.failures == []
    assert set(siege.rows) == set(served.signatures)
    assert len(siege.friendly_seconds) > 10


@pytest.mark.slow
def test_hostile_requests_are_answered_beside_clients_and_leave_no_memory(
    exported,
):
    support = ROOT / "tests" / "support"
    program = subprocess.run(
        [sys.executable, support / "hostile_requests.py", exported, "200"],
        check=True,
        stdout=subprocess.PIPE,
        # Otherwise the memory that a request leaves would drown in what oneDNN
        # keeps for every new shape and malloc for every thread.
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{support}",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "MALLOC_ARENA_MAX": "1",
        },
    )
    found = json.loads(program.stdout)
    assert found["failures"] == []
    assert abs(found["growth"]) <= 0.05
    assert len(found["rows"]) == 5 and all(found["rows"].values())
    assert found["friendly"] > 10


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
