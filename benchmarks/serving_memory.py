"""Peak memory of the largest request to every signature of an export.

Base model, vocabulary 37,000, random weights, so that every translation runs to
its limit; an export as by default (beam 4, sources cut after 256 tokens). The
largest request is a full batch of 32 rows: of long lines, which are cut, and of
lines of a megabyte each. Every request runs in a process of its own, in the
session loader that TensorFlow Serving uses, after a short request of the same
signature; its peak is the process's `VmHWM`, set back before the request.

Example:
    export PYTHONPATH=.
    python benchmarks/serving_memory.py
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from measuring import (
    forget_peak,
    json_of,
    memory,
    parser_of,
    print_head,
    print_row,
)

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

VOCABULARY = 37_000
INPUTS = {
    "serving_default": ["text"],
    "with_prefix": ["text", "prefix"],
    "n_best": ["text"],
    "score": ["source", "target"],
    "attention": ["source", "target"],
}
# Bytes of a line. About 450 tokens, which are cut to 256 or 306; a megabyte.
SIZES = {"long": 3_000, "megabyte": 2**20}


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--preset", default="base", help="default: %(default)s")
    add("--vocabulary", type=int, default=VOCABULARY)
    add("--rows", type=int, default=32, help="default: %(default)s")
    add("--signatures", default=",".join(INPUTS))
    add("--export", type=pathlib.Path, help="keep or reuse the export here")
    add("--ask", nargs=3, help=argparse.SUPPRESS)  # Model, signature, size.
    return parser.parse_args(argv)


def words(count: int) -> list[str]:
    """Make words of syllables, to fill a vocabulary of any size."""
    draw = np.random.default_rng(0)
    syllables = [a + b for a in "bcdfghklmnprstvwz" for b in "aeiou"]
    return [
        "".join(draw.choice(syllables, size))
        for size in draw.integers(2, 6, count)
    ]


def export(
    preset: str, vocabulary_size: int, folder: pathlib.Path, **options
) -> None:
    """Write a SavedModel with random weights."""
    import keras_transformer as kt
    from keras_transformer.config import Search

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = words(2 * vocabulary_size)
    tokenizer = kt.Tokenizer.train(
        [" ".join(vocabulary[i : i + 9]) for i in range(len(vocabulary))],
        vocabulary_size,
        folder / "tokenizer.model",
    )
    model = kt.Transformer.from_preset(preset, vocab_size=tokenizer.vocab_size)
    options = Search(n_best=4, **options)
    kt.export(kt.Translator(model, tokenizer), folder, 1, options)


def ask(model: str, signature: str, size: str, rows: int) -> dict:
    """Return the memory before a request, its peak, and the seconds."""
    from session_loader import Served

    served = Served(model)
    served.everywhere(signature, ["bada"])
    line = " ".join(words(SIZES[size] // 4)).encode()[: SIZES[size]]
    before = memory("VmRSS")
    forget_peak()
    start = time.perf_counter()
    found = served.everywhere(signature, [line] * rows)
    seconds = time.perf_counter() - start
    assert {len(values) for values in found.values()} == {rows}
    return {"before": before, "peak": memory("VmHWM"), "seconds": seconds}


def main(argv=None) -> None:
    args = parse_args(argv)
    if args.ask:
        print(json.dumps(ask(*args.ask, args.rows)))
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = args.export or pathlib.Path(folder)
        if not (folder / "1").exists():
            export(args.preset, args.vocabulary, folder)
        print_head("signature", "lines", "loaded, MB", "peak, MB", "seconds")
        for signature in args.signatures.split(","):
            for size in SIZES:
                asked = ["--ask", folder / "1", signature, size]
                try:
                    found = json_of(__file__, f"--rows={args.rows}", *asked)
                except subprocess.CalledProcessError:
                    print_row(signature, size, "failed", "", "")
                    continue
                sizes = (f"{found[x] / 1e6:,.0f}" for x in ("before", "peak"))
                print_row(signature, size, *sizes, f"{found['seconds']:.1f}")


if __name__ == "__main__":
    main()
