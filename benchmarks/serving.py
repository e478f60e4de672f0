"""Load the embedded server with clients of locust.

Exports a run, starts `keras-transformer serve` and lets 1, 4, 16 and 64 clients
ask for one sentence after another, a minute each. Beside it stands what
`Translator.translate` makes of the same sentences in one call, and what the
SavedModel takes for one sentence, in a process of their own. Server, clients
and nothing else share the machine's cores; memory is what the server has
resident.

With `--in-turn` one client asks the server, the SavedModel and `Translator` for
the first sentence in turn, so that a slow minute meets all three.

Example:
    pip install "locust>=2.30,<3"
    export PYTHONPATH=.
    python benchmarks/serving.py --run-dir runs/tiny \
        --sentences multi30k/test_2016_flickr.en
    TF_NUM_INTRAOP_THREADS=1 python benchmarks/serving.py --run-dir runs/base \
        --sentences multi30k/val.en --in-turn 40 --precision int8 --tokens 32
"""

import argparse
import csv
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
from measuring import json_of, memory, parser_of, print_head, print_row

ROOT = pathlib.Path(__file__).parents[1]
USERS = pathlib.Path(__file__).with_name("serving_users.py")
NAME = "bench"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, help="a trained run")
    add("--sentences", type=pathlib.Path, help="a file, a sentence a line")
    add("--clients", type=int, nargs="*", default=[1, 4, 16, 64])
    add("--seconds", type=int, default=60, help="for each number of clients")
    add("--max-length", type=int, help="most tokens of a translation")
    add("--in-turn", type=int, metavar="N", help="ask N times in turn")
    add("--precision", default="float32", help="with --in-turn")
    add("--tokens", type=int, help="of a translation, with --in-turn")
    add("--alone", nargs=2, help=argparse.SUPPRESS)  # In a process of its own.
    return parser.parse_args(argv)


def alone(run_dir: str, export: str, args: argparse.Namespace) -> dict:
    """Measure without a server: all sentences in one call, then singly."""
    import tensorflow as tf

    from keras_transformer.config import MAX_SOURCE_LENGTH
    from keras_transformer.run import Run

    lines = args.sentences.read_text("utf-8").splitlines()
    translator = Run(run_dir).translator()
    options = {"max_source_length": MAX_SOURCE_LENGTH}
    options["max_length"] = args.max_length
    seconds = []
    for _ in range(2):  # The first traces the graph.
        begun = time.perf_counter()
        translator.translate(lines, **options)
        seconds.append(time.perf_counter() - begun)
    signature = tf.saved_model.load(export).signatures["serving_default"]
    times = []
    for line in lines[:120]:
        begun = time.perf_counter()
        signature(text=tf.constant([line]))["translation"].numpy()
        times.append(time.perf_counter() - begun)
    return {
        "sentences_per_second": len(lines) / seconds[1],
        "median_ms": 1_000 * float(np.median(times[20:])),
    }


class Server:
    """`keras-transformer serve` in a process of its own."""

    def __init__(self, exported: pathlib.Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.host = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "keras_transformer", "serve"]
        command += [str(exported), "--port", str(port), "--name", NAME]
        begun = time.perf_counter()
        self.process = subprocess.Popen(command)
        while not self.answers():
            time.sleep(0.02)
        self.seconds_to_ready = time.perf_counter() - begun

    def answers(self) -> bool:
        """Return whether the model is there."""
        if self.process.poll() is not None:
            raise RuntimeError("The server has ended")
        url = f"{self.host}/v1/models/{NAME}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return b"AVAILABLE" in answer.read()
        except OSError:
            return False

    def megabytes(self) -> float:
        """Return the resident memory."""
        return memory("VmRSS", self.process.pid) / 2**20

    def end(self) -> None:
        """Stop it as a supervisor would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def load(server: Server, clients: int, seconds: int, sentences: str) -> dict:
    """Load the server with clients; return a row of locust's statistics."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["locust", "--locustfile", str(USERS), "--headless"]
        command += ["--users", str(clients), "--spawn-rate", str(clients)]
        command += ["--run-time", f"{seconds}s", "--host", server.host]
        command += ["--csv", f"{folder}/of", "--loglevel", "ERROR"]
        subprocess.run(
            [sys.executable, "-m", *command],
            env={**os.environ, "SENTENCES": sentences, "MODEL": NAME},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with open(f"{folder}/of_stats.csv", newline="") as file:
            return list(csv.DictReader(file))[-1]


def ask_in_turn(args: argparse.Namespace, folder: str) -> None:
    """Print what a sentence takes, alone and served."""
    import tensorflow as tf

    from keras_transformer.config import Search
    from keras_transformer.run import Run

    [line, *_] = args.sentences.read_text("utf-8").splitlines()
    exported = pathlib.Path(folder, NAME)
    options = {"min_length": args.tokens or 0, "max_length": args.tokens}
    run = Run(args.run_dir)
    how = {"search": Search(**options), "precision": args.precision}
    path = run.export(exported, **how)
    translator = run.translator(None, args.precision)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    server = Server(exported)
    request = urllib.request.Request(
        f"{server.host}/v1/models/{NAME}:predict",
        json.dumps({"instances": [line]}).encode(),
        {"Content-Type": "application/json"},
    )
    asked = {
        "Translator": lambda: translator.translate([line], **options),
        "SavedModel": lambda: signature(text=tf.constant([line])),
        "server": lambda: urllib.request.urlopen(request).read(),
    }
    times = {name: [] for name in asked}
    for _ in range(4 + args.in_turn):
        for name, ask in asked.items():
            begun = time.perf_counter()
            ask()
            times[name].append(1_000 * (time.perf_counter() - begun))
    server.end()
    print_head("asked", "median, ms", "least", "the server takes longer by")
    for name, found in times.items():
        found = np.array(found[4:])  # The first ones trace, pack and warm up.
        longer = np.median(np.array(times["server"][4:]) - found)
        figures = np.median(found), found.min(), longer
        print_row(name, *(f"{x:.0f}" for x in figures))


def main(argv=None) -> None:
    """Print the tables."""
    args = parse_args(argv)
    if args.in_turn:
        with tempfile.TemporaryDirectory() as folder:
            ask_in_turn(args, folder)
        return
    if args.alone:
        print(json.dumps(alone(*args.alone, args)))
        return
    from keras_transformer.config import MAX_SOURCE_LENGTH, Search
    from keras_transformer.run import Run

    sentences = str(args.sentences.resolve())
    with tempfile.TemporaryDirectory() as folder:
        exported = pathlib.Path(folder, NAME)
        options = Search(
            n_best=4,
            max_source_length=MAX_SOURCE_LENGTH,
            max_length=args.max_length,
        )
        version = Run(args.run_dir).export(exported, search=options)
        flags = ["--sentences", sentences]
        if args.max_length:
            flags += ["--max-length", str(args.max_length)]
        base = json_of(__file__, "--alone", args.run_dir, version, *flags)
        print(
            f"alone: {base['sentences_per_second']:.0f} sentences/s in one "
            f"call, {base['median_ms']:.0f} ms for one sentence"
        )
        server = Server(exported)
        print(f"ready after {server.seconds_to_ready:.1f} s\n")
        print_head(
            *("clients", "sentences/s", "of one call", "50 %, ms", "95 %"),
            *("99 %", "failed", "memory, MB"),
        )
        load(server, 4, 10, sentences)  # Warm.
        for clients in args.clients:
            row = load(server, clients, args.seconds, sentences)
            rate = float(row["Requests/s"])
            print_row(
                clients,
                f"{rate:.0f}",
                f"{rate / base['sentences_per_second']:.2f}",
                *(row[name] for name in ("50%", "95%", "99%", "Failure Count")),
                f"{server.megabytes():.0f}",
            )
        server.end()


if __name__ == "__main__":
    main()
