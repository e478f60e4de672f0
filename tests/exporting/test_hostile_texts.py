"""Whatever bytes come in, the exported model answers every row, each alone."""

import numpy as np
import pytest
from hostile_requests import KINDS, assert_same, check, requests, siege
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
    hostile = requests(served, 20, seed=3, longest=1_000)
    failures, rows, _ = siege(served, hostile, WORDS[:3], 2, 4)
    assert failures == []
    assert set(rows) == set(served.signatures)
