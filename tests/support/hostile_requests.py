"""Requests that nobody sends by accident, and a siege of an export with them.

As a program, with an EXPORT/VERSION and a number of requests, it besieges that
export twice and says in JSON what it saw.
"""

import collections
import contextlib
import ctypes
import gc
import itertools
import json
import os
import pathlib
import sys
import threading
from concurrent import futures

import numpy as np

_EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "1️⃣", "😀", "\ufe0f", "\u200d"]
_MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"


def _broken_utf8(draw, size):
    parts = b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3"
    return b"".join(draw.choice(parts, size // 3)) + b" Hund"


def _zeros(draw, size):
    return b"\0" * size if draw.random() < 0.5 else b"Hu\0nd\0 " * (size // 7)


def _letters(draw, letters, count):
    return "".join(draw.choice(list(letters), count)).encode()


def _towers(draw, size):
    height = int(draw.integers(2, 200))
    return ("e" + "\u0301" * height).encode() * (size // (1 + 2 * height))


# Each is drawn with about so many bytes.
KINDS = [
    lambda draw, size: draw.bytes(size),
    _broken_utf8,
    _zeros,
    lambda draw, size: _letters(draw, _MARKS + "abשלمر ", size // 3),
    _towers,
    lambda draw, size: _letters(draw, _EMOJI, size // 12),
    # One letter to 3 under NFC.
    lambda draw, size: "\ufb2c".encode() * (size // 3),
    lambda draw, size: b"a small dog runs laut " * (size // 22),
    lambda draw, size: b" \n\t\r" * (size // 4),
    lambda draw, size: b"a" * size,
]


def requests(served, count, seed, longest):
    """Each a signature and its inputs: 0 to 32 rows of the kinds above.

    Every signature has its turn. Inputs are drawn apart, so that a short text
    meets a prefix of any length. One text in fifty has `longest` bytes, the
    others up to 3,000, most of them less than 100.
    """
    draw = np.random.default_rng(seed)
    names = itertools.cycle(sorted(served.signatures))
    for signature in itertools.islice(names, count):
        rows = int(
            draw.choice([0, 1, 2, 3, 5, 8, 32], p=[0.1] + [0.16] * 5 + [0.1])
        )
        yield (
            signature,
            {
                name: [_text(draw, longest) for _ in range(rows)]
                for name in served.signatures[signature].inputs
            },
        )


def _text(draw, longest):
    is_longest = draw.random() < 0.02
    size = longest if is_longest else int(3_000 ** draw.random())
    return KINDS[draw.integers(len(KINDS))](draw, size)


def check(answer, num_rows):
    """A row for each text; text is UTF-8, as JSON needs it; no score is NaN."""
    for name, values in answer.items():
        assert values.shape[0] == num_rows, name
        if values.dtype == object:
            for text in values.ravel():
                text.decode()
        else:
            assert not np.isnan(values).any(), name


def resident_bytes():
    """Memory in use, after malloc has given back what was freed."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def assert_same(values, wanted):
    """Numbers may differ by what the batch rounds."""
    if values.dtype.kind == "f":
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(values, wanted)


class Siege:
    """Hostile requests to an export, and friendly clients beside them.

    Attributes:
        failures: The wrong answers, as text.
        rows: Rows of hostile requests answered, by signature.
        friendly: Number of friendly requests.

    Args:
        served: An export.
        texts: What the friendly clients ask; answered once here, alone, to
            compare with.
    """

    def __init__(self, served, texts):
        self.served = served
        self.failures, self.friendly = [], 0
        self.rows = collections.Counter()
        self._lock = threading.Lock()
        # Shapes of these answers do not depend on the batch.
        self._expected = {
            (signature, text): served.everywhere(signature, [text])
            for signature in ("n_best", "score", "serving_default")
            for text in texts
        }

    def run(self, hostile, attackers, clients):
        """Ask all of `hostile` in threads, and ordinary texts meanwhile."""
        hostile = iter(hostile)
        with futures.ThreadPoolExecutor(attackers + clients) as pool:
            attacks = [
                pool.submit(self._attack, hostile) for _ in range(attackers)
            ]
            friends = [
                pool.submit(self._befriend, seed, attacks)
                for seed in range(clients)
            ]
            for each in [*attacks, *friends]:
                each.result()

    def _attack(self, hostile):
        while True:
            with self._lock:
                signature, inputs = next(hostile, (None, None))
            if signature is None:
                return
            rows = len(next(iter(inputs.values())))
            with self._noting(f"{signature} of {rows} hostile rows"):
                check(self.served(signature, **inputs), rows)
            with self._lock:
                self.rows[signature] += rows

    def _befriend(self, seed, attacks):
        draw = np.random.default_rng(seed)
        keys = list(self._expected)
        while not all(attack.done() for attack in attacks):
            signature, _ = keys[draw.integers(len(keys))]
            texts = [text for name, text in keys if name == signature]
            texts = draw.choice(texts, draw.integers(1, 9)).tolist()
            with self._noting(f"{signature} of {len(texts)} friendly rows"):
                self._ask(signature, texts)
            with self._lock:
                self.friendly += 1

    def _ask(self, signature, texts):
        answer = self.served.everywhere(signature, texts)
        for name, values in answer.items():
            wanted = np.concatenate(
                [self._expected[signature, text][name] for text in texts]
            )
            assert_same(values, wanted)

    @contextlib.contextmanager
    def _noting(self, what):
        try:
            yield
        except Exception as error:  # All others are still to be asked.
            self.failures.append(f"{what}: {type(error).__name__}: {error}")


def main(export, count):
    """Print how memory grew from one siege to the next, and what that saw."""
    from sample_runs import WORDS
    from session_loader import Served

    served = Served(export)
    memory = []
    for seed, number in (2, count // 2), (1, count):
        siege = Siege(served, WORDS[:15])
        hostile = requests(served, number, seed, longest=2**15)
        siege.run(hostile, attackers=4, clients=4)
        memory.append(resident_bytes())
    found = {
        "growth": memory[1] / memory[0] - 1,
        "failures": siege.failures,
        "rows": siege.rows,
        "friendly": siege.friendly,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
