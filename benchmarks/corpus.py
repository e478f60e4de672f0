"""Time examples/beam against plain `translate` on the same lines, in turn.

Whole commands, from start to end, with the same model, beam 4. Each ends with
as many lines, whose translations are compared.

Example:
    PYTHONPATH=. python benchmarks/corpus.py --run-dir runs/multi30k \
        --text TEST.en --copies 20
"""

import argparse
import pathlib
import sys
import tempfile

from measuring import parser_of, print_head, print_row, timed

EXAMPLE = (
    pathlib.Path(__file__).parents[1] / "examples/beam/translate_corpus.py"
)
SHARDS = 8


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, required=True, help="a trained model")
    add("--text", type=pathlib.Path, required=True, help="one sentence a line")
    add("--copies", type=int, default=10, help="of the text, one after another")
    add("--rounds", type=int, default=2, help="of all commands in turn")
    return parser.parse_args(argv)


def main(argv=None) -> None:
    """Write the shards, export, and time all commands in turn."""
    args = parse_args(argv)
    lines = args.text.read_bytes().removesuffix(b"\n").split(b"\n")
    lines = [line + b"\n" for line in lines] * args.copies
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text, plain = folder / "all.txt", folder / "plain.txt"
        text.write_bytes(b"".join(lines))
        size = -(-len(lines) // SHARDS)
        for k in range(SHARDS):
            part = lines[k * size : (k + 1) * size]
            (folder / f"in-{k}.txt").write_bytes(b"".join(part))
        verb = [sys.executable, "-m", "keras_transformer"]
        common = ["--run-dir", args.run_dir]
        timed([*verb, "export", *common, "--output", folder / "exported"])
        commands = {
            "translate": [
                *(*verb, "translate", *common),
                *("--input", text, "--output", plain),
            ]
        }
        for workers, threads in ((1, 0), (2, 1)):
            commands[f"Beam, {workers} processes"] = [
                *(sys.executable, EXAMPLE),
                *("--model", folder / "exported" / "1"),
                *("--input", folder / "in-*.txt", "--output", folder / "out"),
                *("--threads", threads),
                *("--direct_running_mode", "multi_processing"),
                *("--direct_num_workers", workers),
            ]
        print_head("command", "sentences/s", "lines that differ")
        for _ in range(args.rounds):
            for label, command in commands.items():
                if label == "translate":
                    plain.unlink(missing_ok=True)
                speed = len(lines) / timed(command).seconds
                expected = plain.read_text().split("\n")
                rows = expected
                if label != "translate":
                    parts = sorted(folder.glob("out-*.tsv"))
                    joined = "".join(part.read_text() for part in parts)
                    rows = [row.split("\t")[0] for row in joined.split("\n")]
                differ = sum(
                    a != b for a, b in zip(rows, expected, strict=True)
                )
                print_row(label, f"{speed:.0f}", differ)


if __name__ == "__main__":
    main()
