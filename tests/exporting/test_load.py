"""Hostile requests are all answered, and leave no trace."""

import json
import os
import pathlib
import subprocess
import sys

import hostile_requests
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
    assert siege.friendly > 10


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
