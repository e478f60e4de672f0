"""Whatever bytes come in, the exported model answers every row, each alone."""

import hostile_requests
import numpy as np
import pytest
from hostile_requests import KINDS, assert_same, check
from sample_runs import WORDS

draw = np.random.default_rng(0)
TEXTS = [kind(draw, size) for kind in KINDS for size in (40, 2**16)]
TEXTS += [
    *(b"", b"\0", "ä".encode()[:1], "ein kleiner Hund läuft".encode()),
    bytes(range(1, 32)) + b"\x7f\xc2\x85",
    "\u00a0\u2003\u3000\u200b\U0010ffff\uffff\ufffe\ufeff\u200c".encode(),
    "▁▁<s></s><unk><pad><0x41>".encode(),
]


def test_every_awkward_text_is_answered(served):
    for signature in served.signatures:
        check(served.everywhere(signature, TEXTS), len(TEXTS))


@pytest.mark.slow
def test_every_awkward_text_is_answered_whatever_its_neighbours(served):
    together = served.everywhere("n_best", TEXTS)
    for row, text in enumerate(TEXTS):
        for name, values in served.everywhere("n_best", [text]).items():
            assert_same(values, together[name][row : row + 1])


@pytest.mark.stands_for("hostile input")
def test_clients_get_their_own_answers_beside_hostile_requests(served):
    siege = hostile_requests.Siege(served, WORDS[:3])
    hostile = hostile_requests.requests(served, 20, seed=3, longest=1_000)
    siege.run(hostile, attackers=2, clients=4)
    assert siege.failures == []
    assert set(siege.rows) == set(served.signatures)
    assert siege.friendly > 10
