"""Whatever bytes come in, the exported model answers every row, each alone."""

import hostile_requests
import numpy as np
import pytest
from hostile_requests import KINDS, check
from sample_runs import WORDS

draw = np.random.default_rng(0)
TEXTS = [kind(draw, size) for kind in KINDS for size in (40, 2**16)]
TEXTS += [
    *(b"", b"\0", "ä".encode()[:1], "ein kleiner Hund läuft".encode()),
    bytes(range(1, 32)) + b"\x7f\xc2\x85",
    "\u00a0\u2003\u3000\u200b\U0010ffff\uffff\ufffe\ufeff\u200c".encode(),
    "▁▁<s></s><unk><pad><0x41>".encode(),
]


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
def test_clients_get_their_own_answers_beside_hostile_requests(served):
    siege = hostile_requests.Siege(served, WORDS[:3])
    hostile = hostile_requests.requests(served, 20, seed=3, longest=1_000)
    siege.run(hostile, attackers=2, clients=4)
    assert siege.failures == []
    assert set(siege.rows) == set(served.signatures)
    assert siege.friendly > 10
