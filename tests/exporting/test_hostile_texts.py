"""Whatever bytes come in, the exported model answers every row, each alone."""

import numpy as np
import pytest
from hostile_requests import KINDS, assert_same, check

draw = np.random.default_rng(0)
TEXTS = [kind(draw, size) for kind in KINDS for size in (40, 2**16)]
TEXTS += [
    *(b"", b"\0", "ä".encode()[:1], "ein kleiner Hund läuft".encode()),
    bytes(range(1, 32)) + b"\x7f\xc2\x85",
    "\u00a0\u2003\u3000\u200b\U0010ffff\uffff\ufffe\ufeff\u200c".encode(),
    "▁▁<s></s><unk><pad><0x41>".encode(),
]


@pytest.mark.stands_for("hostile input")
def test_every_awkward_text_is_answered(served):
    for signature in served.signatures:
        for texts in TEXTS, []:
            check(served.everywhere(signature, texts), len(texts))


@pytest.mark.slow
def test_every_awkward_text_is_answered_whatever_its_neighbours(served):
    together = served.everywhere("n_best", TEXTS)
    for row, text in enumerate(TEXTS):
        for name, values in served.everywhere("n_best", [text]).items():
            assert_same(values, together[name][row : row + 1])
