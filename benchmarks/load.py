"""Besiege an export: hostile requests to every signature, clients beside them.

The requests are those of `tests/support/hostile_requests.py`: bytes that are no
UTF-8, zero
bytes, lines of a megabyte, marks of direction, towers of combining marks, emoji
sequences, prefixes beyond every limit, batches of none to 32 rows. The clients
ask ordinary texts and compare each row with its answer when asked alone. All
are threads that call the signatures in the session loader, as TensorFlow
Serving does. Memory is what is resident once malloc has given back what is
free, after a warm-up and at the end.

Exits with 1 where a request was not answered as it should be, or memory has
changed by more than `--tolerance`.

Example:
    export PYTHONPATH=.
    python benchmarks/load.py --requests 10000 --minutes 10
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
from measuring import parser_of

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add(
        "--export",
        type=pathlib.Path,
        help="OUTPUT/VERSION; default: the preset demo, vocabulary 2000, "
        "random weights, translations of at most 48 tokens",
    )
    add("--requests", type=int, default=10_000, help="hostile ones")
    add("--warm-up", type=int, default=2_000, help="hostile ones before")
    add("--longest", type=int, default=2**20, help="bytes of the longest lines")
    add("--attackers", type=int, default=4, help="threads")
    add("--clients", type=int, default=16, help="threads")
    add("--minutes", type=float, default=10, help="of the clients, at least")
    add("--pause", type=float, default=0.5, help="seconds, of a client")
    add("--tolerance", type=float, default=0.05, help="share of the memory")
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def besiege(args: argparse.Namespace, path: pathlib.Path) -> bool:
    """Print what happened; returns whether all was well."""
    from hostile_requests import Siege, requests, resident_bytes
    from serving_memory import words
    from session_loader import Served

    served = Served(path)
    texts = [" ".join(words(60)[i : i + 1 + i % 7]) for i in range(0, 30, 2)]
    siege = Siege(served, [*texts, ""])
    threads = dict(
        attackers=args.attackers, clients=args.clients, pause=args.pause
    )
    siege.run(
        requests(served, args.warm_up, args.seed + 1, args.longest), **threads
    )
    siege.hostile_seconds.clear()
    siege.friendly_seconds.clear()
    siege.rows.clear()
    before = resident_bytes()
    start = time.monotonic()
    siege.run(
        requests(served, args.requests, args.seed, args.longest),
        seconds=60 * args.minutes,
        **threads,
    )
    minutes = (time.monotonic() - start) / 60
    after = resident_bytes()
    growth = after / before - 1
    print(f"minutes: {minutes:.1f}")
    for name, seconds in (
        ("hostile", siege.hostile_seconds),
        ("friendly", siege.friendly_seconds),
    ):
        if seconds:
            half, most, longest = np.percentile(seconds, [50, 95, 100])
            print(
                f"{name} requests: {len(seconds):,}; median {half:.2f} s, "
                f"95 % within {most:.2f} s, longest {longest:.1f} s"
            )
    rows = ", ".join(f"{name} {n:,}" for name, n in sorted(siege.rows.items()))
    print(f"hostile rows: {rows}")
    print(
        f"memory: {before / 1e6:,.0f} MB before, {after / 1e6:,.0f} MB after "
        f"({growth:+.1%})"
    )
    print(f"not answered as they should be: {len(siege.failures)}")
    for failure in siege.failures[:10]:
        print(f"    {failure}")
    return not siege.failures and abs(growth) <= args.tolerance


def main(argv=None) -> int:
    args = parse_args(argv)
    if args.export:
        return 0 if besiege(args, args.export) else 1
    from serving_memory import export

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        export("demo", 2_000, folder, max_length=48)
        return 0 if besiege(args, folder / "1") else 1


if __name__ == "__main__":
    sys.exit(main())
