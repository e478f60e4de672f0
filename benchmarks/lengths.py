"""What long texts cost: one sentence by its length, and a long document.

    PYTHONPATH=. python benchmarks/lengths.py --picture benchmarks/lengths.png
    PYTHONPATH=. python benchmarks/lengths.py --run-dir R --text TEST.en

The first command takes `base` with random weights and a vocabulary of 32,000:
one sentence of n tokens and exactly n steps, beam 4, from an exported
SavedModel in a process of its own for each n.

The second takes a trained run and a text of sentences, one a line: through
`translate` line by line, and as one line that `--split-sentences` takes apart,
and through an export of it in one request.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import decoding
from measuring import parser_of, print_head, print_row, subplots, timed

from keras_transformer.machine import devices

LENGTHS = (16, 64, 256, 512, 1024, 2048)


def one_sentence(tokens: int) -> dict[str, float]:
    """Measure a search's seconds and its process's memory in MB."""
    with tempfile.TemporaryDirectory() as path:
        command = [sys.executable, decoding.__file__, "--serve"]
        subprocess.run(
            [sys.executable, __file__, "--export", path, str(tokens)],
            check=True,
        )
        work = [path, 1, tokens, 1, devices.cores()]
        _, line = decoding.run([*command, *work])
    bare, peak = re.search(r"alone (\d+) MB, peak (\d+) MB", line).groups()
    seconds = float(re.search(r"p50 (\d+) ms", line)[1]) / 1e3
    return {"seconds": seconds, "MB": float(peak) - float(bare)}


def by_length(picture: pathlib.Path | None) -> None:
    """Measure, print and draw."""
    found = {}
    print_head("tokens", "seconds", "ms/step", "MB beyond TensorFlow")
    for tokens in LENGTHS:
        found[tokens] = one_sentence(tokens)
        seconds, memory = found[tokens].values()
        step = seconds / tokens * 1e3
        print_row(tokens, f"{seconds:.2f}", f"{step:.1f}", f"{memory:.0f}")
    if picture:
        draw(found, picture)


def draw(found: dict[int, dict[str, float]], path: pathlib.Path) -> None:
    """Time and memory against length."""
    figure, (times, memories) = subplots(1, 2, figsize=(10, 4))
    seconds = [values["seconds"] for values in found.values()]
    first = seconds[0] / LENGTHS[0]
    times.loglog(LENGTHS, seconds, "o-", base=2, label="measured")
    times.loglog(
        LENGTHS,
        [first * tokens for tokens in LENGTHS],
        "k:",
        base=2,
        label="if every step cost as much as at 16 tokens",
    )
    times.set_ylabel("seconds")
    times.legend(fontsize=8)
    memories.plot(LENGTHS, [values["MB"] for values in found.values()], "o-")
    memories.set_ylabel("MB beyond TensorFlow")
    memories.set_ylim(bottom=0)
    for axes in (times, memories):
        axes.set_xlabel("tokens of the source, and of the translation")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def document(run_dir: pathlib.Path, text: pathlib.Path) -> None:
    """Translate a long document by `translate` and by an export."""
    sentences = text.read_text(encoding="utf-8").splitlines()
    verb = [sys.executable, "-m", "keras_transformer"]
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "line by line": "\n".join(sentences),
            "one line, --split-sentences": " ".join(sentences),
        }
        for name, content in files.items():
            source, target = (
                pathlib.Path(folder, f"{name}.{side}")
                for side in ("source", "target")
            )
            source.write_text(content + "\n", encoding="utf-8")
            split = ["--split-sentences"] if "split" in name else []
            command = [*verb, "translate", "--run-dir", run_dir, *split]
            command += ["--input", source, "--output", target]
            seconds, memory, _ = timed(command)
            print(f"{name}: {seconds:.1f} s, {memory:.0f} MB in all")
        export = ["export", "--run-dir", run_dir, "--output", f"{folder}/ours"]
        timed([*verb, *export])
        for count in (100, len(sentences)):
            command = [sys.executable, __file__, "--ask", f"{folder}/ours/1"]
            _, memory, output = timed([*command, text, count])
            seconds = json.loads(output.splitlines()[-1])
            print(
                f"{count} in one request of the export: {seconds:.1f} s, "
                f"{memory:.0f} MB in all"
            )


def ask(path: str, text: str, count: int) -> None:
    """Print the seconds of a request, after a small one."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  Its operators are in the graph.

    sentences = pathlib.Path(text).read_text(encoding="utf-8").splitlines()
    loaded = tf.saved_model.load(path)
    translate = loaded.signatures["serving_default"]
    (name,) = translate.structured_input_signature[1]
    translate(**{name: tf.constant(sentences[:2])})
    start = time.perf_counter()
    translate(**{name: tf.constant(sentences[:count])})
    print(json.dumps(time.perf_counter() - start))


def main() -> None:
    """Run what was asked for."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--picture", type=pathlib.Path)
    add("--run-dir", type=pathlib.Path, help="a trained model, with --text")
    add("--text", type=pathlib.Path, help="source sentences, one a line")
    add("--export", nargs=2, help=argparse.SUPPRESS)  # Path, tokens.
    add("--ask", nargs=3, help=argparse.SUPPRESS)  # Path, text, sentences.
    args = parser.parse_args()
    if args.export:
        decoding.export_random(args.export[0], int(args.export[1]))
    elif args.ask:
        ask(args.ask[0], args.ask[1], int(args.ask[2]))
    elif args.run_dir:
        document(args.run_dir, args.text)
    else:
        by_length(args.picture)


if __name__ == "__main__":
    main()
