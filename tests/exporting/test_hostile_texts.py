"""Whatever bytes come in, the exported model answers every row, each alone."""

import json
import os
import pathlib
import subprocess
import sys

import hostile_requests
import numpy as np
import pytest
from hostile_requests import KINDS, check
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import WORDS

draw = np.random.default_rng(0)
TEXTS = [kind(draw, size) for kind in KINDS for size in (40, 2**16)]
TEXTS += [
    *(b"", b"\0", "ä".encode()[:1], "ein kleiner Hund läuft".encode()),
    bytes(range(1, 32)) + b"\x7f\xc2\x85",
    "\u00a0\u2003\u3000\u200b\U0010ffff\uffff\ufffe\ufeff\u200c".encode(),
    "▁▁<s></s><unk><pad><0x41>".encode(),
]

# Not longer: what is long is above.
any_text = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from([text for text in TEXTS if len(text) < 100]),
)


def assert_same(answer, row, other, other_row):
    """Two rows say the same; the axes after the first may be padded."""
    for name, values in answer.items():
        # Still one row, since a lone string has no shape.
        one = values[row : row + 1]
        two = other[name][other_row : other_row + 1]
        common = tuple(map(slice, np.minimum(one.shape, two.shape)))
        for rest in (one, two):
            padding = np.ones(rest.shape, bool)
            padding[common] = False
            assert not rest[padding].any(), name
        one, two = one[common], two[common]
        if values.dtype.kind == "f":
            np.testing.assert_allclose(
                one, two, rtol=1e-4, atol=1e-4, err_msg=name
            )
        else:
            np.testing.assert_array_equal(one, two, err_msg=name)


@pytest.mark.slow
def test_every_awkward_text_is_answered_whatever_its_neighbours(served):
    for signature in served.signatures:
        answers = [served.everywhere(signature, [text]) for text in TEXTS]
        together = served.everywhere(signature, TEXTS)
        check(together, len(TEXTS))
        for row, answer in enumerate(answers):
            check(answer, 1)
            assert_same(together, row, answer, 0)


@pytest.mark.stands_for("hostile input")
@settings(max_examples=15, deadline=None, derandomize=True)
@given(pairs=st.lists(st.tuples(any_text, any_text), min_size=1, max_size=5))
def test_unequal_inputs_are_answered_too(served, pairs):
    for signature, definition in served.signatures.items():
        if len(definition.inputs) == 2:
            columns = zip(*pairs, strict=True)
            answer = served(
                signature,
                **dict(zip(definition.inputs, map(list, columns), strict=True)),
            )
            check(answer, len(pairs))


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
