"""Texts that nobody sends by accident, and what must hold of an answer."""

import numpy as np

_EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "1️⃣", "😀", "\ufe0f", "\u200d"]
_MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"
_BROKEN = b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"


def _letters(draw, letters, count):
    return "".join(draw.choice(list(letters), count)).encode()


def _towers(draw, size):
    height = int(draw.integers(2, 200))
    return ("e" + "\u0301" * height).encode() * (size // (1 + 2 * height))


# Each is drawn with about so many bytes.
KINDS = [
    lambda draw, size: draw.bytes(size),
    lambda draw, size: b"".join(draw.choice(_BROKEN, size // 3)) + b" Hund",
    lambda draw, size: b"\0" * size,
    lambda draw, size: b"Hu\0nd\0 " * (size // 7),
    lambda draw, size: _letters(draw, _MARKS + "abשלمر ", size // 3),
    _towers,
    lambda draw, size: _letters(draw, _EMOJI, size // 12),
    # One letter to 3 under NFC.
    lambda draw, size: "\ufb2c".encode() * (size // 3),
    lambda draw, size: b"a small dog runs laut " * (size // 22),
    lambda draw, size: b" \n\t\r" * (size // 4),
    lambda draw, size: b"a" * size,
]


def check(answer, num_rows):
    """A row for each text; text is UTF-8, as JSON needs it; no score is NaN."""
    for name, values in answer.items():
        assert values.shape[0] == num_rows, name
        if values.dtype == object:
            for text in values.ravel():
                text.decode()
        else:
            assert not np.isnan(values).any(), name


def assert_same(values, wanted):
    """Numbers may differ by what the batch rounds."""
    if values.dtype.kind == "f":
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(values, wanted)
