"""Many clients of one loaded model get right answers; memory stays steady."""

import pathlib
import threading
import time
from concurrent import futures

import numpy as np
import pytest
from sample_runs import WORDS

THREADS = 8
# Measured with 16 threads: resident memory grows by 500 MiB in the first 600
# calls, while malloc's arenas fill, and by 50 in the next 1,400. With 8 threads
# it grows by 14 in the 200 calls that follow here. The caches of one batch are
# a megabyte: lost in each of these calls, they stand out.
WARMUP_CALLS = 40  # By each thread.
SECONDS = 10
MAX_GROWTH_MIB = 100


def resident_mib():
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096 / 2**20


def hammer(served, texts, seconds, max_batch_size=8):
    """Ask from all threads at once and compare every row with its own answer.

    Returns:
        The numbers of calls and rows, and the resident memory in MiB after
        the warm-up and at the end.
    """
    # The shapes of these answers do not depend on the batch.
    signatures = "n_best", "score", "serving_default"
    expected = {
        signature: [served.everywhere(signature, [text]) for text in texts]
        for signature in signatures
    }
    memory, ends = [], []

    def start():
        memory.append(resident_mib())
        ends.append(time.monotonic() + seconds)

    all_warm = threading.Barrier(THREADS, start)

    def client(seed):
        draw = np.random.default_rng(seed)
        calls = rows = 0
        while calls <= WARMUP_CALLS or time.monotonic() < ends[0]:
            if calls == WARMUP_CALLS:
                all_warm.wait()
            signature = str(draw.choice(signatures))
            chosen = draw.integers(
                len(texts), size=draw.integers(1, max_batch_size + 1)
            )
            answer = served.everywhere(signature, [texts[i] for i in chosen])
            for name, values in answer.items():
                wanted = [expected[signature][i][name] for i in chosen]
                if values.dtype.kind == "f":
                    np.testing.assert_allclose(
                        values, np.concatenate(wanted), rtol=1e-4, atol=1e-4
                    )
                else:
                    np.testing.assert_array_equal(
                        values, np.concatenate(wanted)
                    )
            calls, rows = calls + 1, rows + len(chosen)
        return calls, rows

    with futures.ThreadPoolExecutor(THREADS) as pool:
        clients = [pool.submit(client, seed) for seed in range(THREADS)]
        calls, rows = np.sum([each.result() for each in clients], axis=0)
    return calls, rows, memory[0], resident_mib()


@pytest.mark.slow
def test_many_clients_get_right_answers_and_memory_is_steady(served):
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, n)) for n in draw.integers(1, 12, 30)]

    calls, rows, warm, end = hammer(served, [*texts, ""], SECONDS)

    assert calls > THREADS * (WARMUP_CALLS + 1) and rows > calls
    assert end - warm < MAX_GROWTH_MIB, f"{warm:.0f} MiB, then {end:.0f}"
