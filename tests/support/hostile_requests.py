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
        inputs = {
            name: [_text(draw, longest) for _ in range(rows)]
            for name in served.signatures[signature].inputs
        }
        yield signature, inputs


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


def siege(served, hostile, texts, attackers, clients):
    """Ask all of `hostile` in threads, and ordinary texts meanwhile.

    Args:
        served: An export.
        hostile: Requests as those above.
        texts: What friendly clients ask; answered alone first, to compare with.

    Returns:
        The wrong answers as text, the rows of hostile requests by signature,
        and the number of friendly requests, at least five of each client.
    """
    # Shapes of these answers do not depend on the batch.
    names = ("n_best", "score", "serving_default")
    keys = list(itertools.product(names, texts))
    alone = {key: served.everywhere(key[0], [key[1]]) for key in keys}
    failures, rows, friendly = [], collections.Counter(), []
    hostile, lock = iter(hostile), threading.Lock()

    @contextlib.contextmanager
    def noting(what):
        try:
            yield
        except Exception as error:  # All others are still to be asked.
            failures.append(f"{what}: {type(error).__name__}: {error}")

    def attack():
        while True:
            with lock:
                signature, inputs = next(hostile, (None, None))
            if signature is None:
                return
            count = len(next(iter(inputs.values())))
            with noting(f"{signature} of {count} hostile rows"):
                check(served(signature, **inputs), count)
            with lock:
                rows[signature] += count

    def befriend(seed):
        draw = np.random.default_rng(seed)
        for asked in itertools.count():
            if asked >= 5 and all(attack.done() for attack in attacks):
                return
            name, _ = keys[draw.integers(len(keys))]
            some = draw.choice(texts, draw.integers(1, 9)).tolist()
            with noting(f"{name} of {len(some)} friendly rows"):
                for part, values in served.everywhere(name, some).items():
                    wanted = [alone[name, text][part] for text in some]
                    assert_same(values, np.concatenate(wanted))
            friendly.append(name)

    with futures.ThreadPoolExecutor(attackers + clients) as pool:
        attacks = [pool.submit(attack) for _ in range(attackers)]
        friends = [pool.submit(befriend, seed) for seed in range(clients)]
        for each in [*attacks, *friends]:
            each.result()
    return failures, rows, len(friendly)


def main(export, count):
    """Print how memory grew from one siege to the next, and what that saw."""
    from sample_runs import WORDS
    from session_loader import Served

    served = Served(export)
    memory = []
    for seed, number in (2, count // 2), (1, count):
        hostile = requests(served, number, seed, longest=2**15)
        seen = siege(served, hostile, WORDS[:15], attackers=4, clients=4)
        memory.append(resident_bytes())
    names = ("failures", "rows", "friendly")
    found = dict(zip(names, seen, strict=True))
    print(json.dumps({"growth": memory[1] / memory[0] - 1, **found}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
