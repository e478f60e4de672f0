"""Time the exported beam search against its peers, and its cost by size.

Base model, vocabulary 32,000, random weights, beam 4, alpha 0.6, exactly so
many steps for every system. The peers' scripts take sentences, source tokens
and target tokens (and CTranslate2's the precision) and print tokens/s; each
runs with the Python of its own environment. Where one is missing, its rows are.

With `--run-dir` a trained model translates the lines of `--text` instead, ours
in every precision and its own export in CTranslate2, pieces to pieces. Ours
stops a sentence as CTranslate2 does (`max_finished`), except where it is called
"proven": there it goes on until nothing else can win, as it does by default.

A system has all cores in one search, or one in each of several that share the
sentences: "1 × 2" and "2 × 1" threads on two cores. A single sentence has one
thread or all.

Example:
    export PYTHONPATH=.
    python benchmarks/decoding.py --scripts ../shared/bench
    python benchmarks/decoding.py --run-dir runs/multi30k --text TEST.en
"""

import argparse
import math
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures

from measuring import memory, parser_of, print_head, print_row, timed

from keras_transformer.machine import devices

VOCABULARY = 32_000
BEAMS = 4
PRECISIONS = ("float32", "bfloat16", "int8", "int8, shortlist")
REAL_BATCHES = (32, 128)
PROVEN = ", proven"
REAL = (
    *(*PRECISIONS, "bfloat16, shortlist"),
    *(f"float32{PROVEN}", f"bfloat16{PROVEN}"),
)
PEERS = {
    "OpenNMT-tf": ("onmt", "opennmt_decode.py"),
    "MarianMT (PyTorch)": ("torch", "marian_decode.py"),
}
# CTranslate2's script, with workers and threads of our choice.
CTRANSLATE2 = """
import pathlib, sys
path, workers, threads, *sys.argv[1:] = sys.argv[1:]
text = pathlib.Path(path).read_text()
text = text.replace("inter_threads=1", f"inter_threads={workers}")
text = text.replace("intra_threads=2", f"intra_threads={threads}")
size = f"max_batch_size=-(-sentences // {workers})"
text = text.replace("max_batch_size=sentences", size)
exec(compile(text, path, "exec"))
"""


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--scripts", type=pathlib.Path, help="folder of the peers' scripts")
    peers = pathlib.Path(".peers")
    add("--peers", type=pathlib.Path, default=peers, help="environments")
    add("--rounds", type=int, default=2, help="of all systems in turn")
    add("--batches", default="32,1", help="sentences; default: %(default)s")
    add("--tokens", type=int, default=32, help="of a source and a target")
    add("--grid", action="store_true", help="cost by batch and length instead")
    add("--run-dir", type=pathlib.Path, help="a trained model, with --text")
    add("--text", type=pathlib.Path, help="source sentences, one a line")
    # Path, sentences, tokens, searches, threads of each.
    add("--serve", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def random_shortlist():
    """As many candidates as the verb finds by default, by Zipf's law."""
    import numpy as np

    from keras_transformer.decoding.shortlist import Shortlist

    ranks = np.arange(1, VOCABULARY - 3)
    draw = np.random.default_rng(0)
    candidates = draw.choice(
        ranks + 3, [VOCABULARY, 200], p=1 / ranks / np.sum(1 / ranks)
    )
    candidates[1:, 50:] = 0
    candidates[0] = np.arange(4, 204)
    return Shortlist(candidates)


def export_random(path: str, steps: int, way: str = "float32") -> None:
    """Write a SavedModel with random weights that takes so many steps."""
    from keras_transformer.config import Search
    from keras_transformer.decoding import frozen_weights
    from keras_transformer.decoding.id_model import IdModel
    from keras_transformer.model import Transformer

    precision, _, shortlist = way.partition(", ")
    weights = frozen_weights.PackedWeights
    if precision == "int8":
        weights, precision = frozen_weights.Int8Weights, "float32"
    model = Transformer.from_preset(
        "base", vocab_size=VOCABULARY, dtype=precision
    )
    candidates = random_shortlist() if shortlist else None
    id_model = IdModel(model, weights(model), candidates)
    options = Search(beam_size=BEAMS, min_length=steps, max_length=steps)
    export(id_model, options, path)


def export(id_model, options, path: str) -> None:
    """Write a SavedModel that searches from ids to ids."""
    import keras
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.add_endpoint(
        "serving_default",
        lambda source: id_model.search_ids(source, options)._asdict(),
        [tf.TensorSpec([None, None], tf.int32, "source")],
    )
    archive.write_out(path, verbose=False)


def serve(
    path: str, sentences: int, tokens: int, searches: int, threads: int
) -> None:
    """Load as TensorFlow Serving does, run, and print what it took."""
    import numpy as np
    import tensorflow as tf

    bare = memory("VmHWM")
    start = time.perf_counter()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], path)
        load = time.perf_counter() - start
        signature = loaded.signature_def["serving_default"]
        draw = np.random.default_rng(0).integers
        source = draw(4, VOCABULARY, (sentences, tokens))
        call = session.make_callable(
            signature.outputs["ids"].name, [signature.inputs["source"].name]
        )
        parts = np.array_split(source, searches)
        with futures.ThreadPoolExecutor(searches) as pool:
            times = []
            for _ in range(1 + max(3, min(20, 4_096 // (sentences * tokens)))):
                start = time.perf_counter()
                found = list(pool.map(call, parts))
                times.append(time.perf_counter() - start)
    assert np.concatenate(found).shape == (sentences, 1, tokens)
    times = times[1:]  # The first one packs weights.
    p50, p95 = np.percentile(times, [50, 95]) * 1e3
    print(
        f"{sentences * tokens / min(times):.0f} target tokens/s, load "
        f"{load:.1f} s, p50 {p50:.0f} ms, p95 {p95:.0f} ms, "
        f"TensorFlow alone {bare / 2**20:.0f} MB, "
        f"peak {memory('VmHWM') / 2**20:.0f} MB"
    )


def run(command: list) -> tuple[float, str]:
    """Tokens/s and the last line printed, with the peak memory of a peer."""
    done = timed(command)
    line = done.output.strip().splitlines()[-1]
    speed = float(re.search(r"(\d+) target tokens/s", line)[1])
    return speed, f"{line} [{done.megabytes:.0f} MB]"


def ways(sentences: int) -> list[tuple[int, int]]:
    """Searches at a time, and the threads of each."""
    cores = devices.cores()
    return [(1, cores), (1, 1) if sentences == 1 else (cores, 1)]


def commands(args: argparse.Namespace, paths: dict, sentences: int) -> dict:
    """The command of each system whose environment is there, by its name."""
    work = [sentences, args.tokens]
    found = {}
    for searches, threads in ways(sentences):
        way = f"{searches} × {threads}"
        for precision, path in paths.items():
            found[f"keras_transformer {precision}, {way}"] = [
                *(sys.executable, __file__, "--serve"),
                *(path, *work, searches, threads),
            ]
        python = args.peers / "ct2/bin/python"
        if args.scripts and python.exists():
            script = args.scripts / "ctranslate2_decode.py"
            for precision in ("float32", "int8"):
                found[f"CTranslate2 {precision}, {way}"] = [
                    *(python, "-c", CTRANSLATE2, script, searches, threads),
                    *(*work, args.tokens, precision),
                ]
    for name, (folder, script) in PEERS.items():
        python = args.peers / folder / "bin/python"
        if args.scripts and python.exists():
            found[name] = [python, args.scripts / script, *work, args.tokens]
    return found


def compare(args: argparse.Namespace, folder: str) -> None:
    """All systems in turn, so that a slow minute meets each of them."""
    paths = {p: f"{folder}/{p}" for p in PRECISIONS}
    for precision, path in paths.items():
        export_random(path, args.tokens, precision)
    print_head("sentences", "system", "target tokens/s")
    for sentences in map(int, args.batches.split(",")):
        systems = commands(args, paths, sentences)
        speeds = {name: [] for name in systems}
        for _ in range(args.rounds):
            for name, command in systems.items():
                speed, line = run(command)
                speeds[name].append(speed)
                print(f"# {sentences}: {name}: {line}", file=sys.stderr)
        for name, found in speeds.items():
            each = ", ".join(f"{speed:.0f}" for speed in found)
            print_row(sentences, name, each)


def compare_real(args: argparse.Namespace) -> None:
    """A trained model on real sentences, each system at its best batches."""
    import tensorflow as tf

    from keras_transformer.run import Run

    tf.config.threading.set_intra_op_parallelism_threads(1)
    trained = Run(args.run_dir)
    tokenizer = trained.translator().tokenizer
    texts = args.text.read_text(encoding="utf-8").splitlines()
    ids = tokenizer.tokenize(texts)
    ids = tf.gather(ids, tf.argsort(ids.row_lengths(), direction="DESCENDING"))
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    pieces = [[names[i] for i in row[:-1]] for row in ids.to_list()]
    cores = devices.cores()
    with tempfile.TemporaryDirectory() as folder:
        systems = {
            f"keras_transformer {precision}, {cores} × 1": our_search(
                trained, precision, f"{folder}/{precision}", ids, cores
            )
            for precision in REAL
        }
        for precision in ("float32", "int8"):
            for workers in sorted({1, cores}):
                way = f"{workers} × {cores // workers}"
                path = f"{folder}/theirs-{precision}-{workers}"
                systems[f"CTranslate2 {precision}, {way}"] = their_search(
                    trained, precision, path, pieces, workers
                )
        seconds = best_seconds(systems, args.rounds)
    print_head("system", "sentences/s")
    for (name, size), best in seconds.items():
        print_row(f"{name}, batches of {size}", f"{len(texts) / best:.0f}")


def our_search(
    trained, precision: str, path: str, ids, searches: int
) -> Callable[[int], None]:
    """A function that translates in batches of a size, by an export of ours."""
    import tensorflow as tf

    from keras_transformer.config import Search

    is_proven = precision.endswith(PROVEN)
    precision, _, shortlist = precision.removesuffix(PROVEN).partition(", ")
    if shortlist:
        shortlist = trained.shortlist(f"{path}.tsv")
    model = trained.translator(None, precision, shortlist or None).id_model
    export(model, Search(max_finished=None if is_proven else BEAMS), path)
    signature = tf.saved_model.load(path).signatures["serving_default"]

    def search(rows):
        return signature(source=ids[rows].to_tensor(0))["ids"].numpy()

    def translate(size):
        starts = range(0, ids.nrows(), size)
        batches = [slice(start, start + size) for start in starts]
        with futures.ThreadPoolExecutor(searches) as pool:
            list(pool.map(search, batches))

    return translate


def their_search(
    trained, precision: str, path: str, pieces: list[list[str]], workers: int
) -> Callable[[int], None]:
    """The same by CTranslate2, whose workers share the cores."""
    import ctranslate2

    from keras_transformer.exporting import ctranslate2 as ctranslate2_export

    model = ctranslate2.Translator(
        str(ctranslate2_export.export(trained.translator(), path)),
        compute_type=precision,
        inter_threads=workers,
        intra_threads=devices.cores() // workers,
    )

    def translate(size):
        model.translate_batch(
            pieces, max_batch_size=size, beam_size=BEAMS, length_penalty=0.6
        )

    return translate


def best_seconds(
    systems: dict[str, Callable[[int], None]], rounds: int
) -> dict[tuple[str, int], float]:
    """The least time of each system and size of batches, all in turn."""
    best = {(name, size): math.inf for size in REAL_BATCHES for name in systems}
    for _ in range(1 + rounds):  # The first one warms up.
        for name, size in best:
            start = time.perf_counter()
            systems[name](size)
            seconds = time.perf_counter() - start
            best[name, size] = min(best[name, size], seconds)
    return best


# Tokens by sentences.
GRID = {1: (16, 64, 512), 8: (32, 128), 32: (32,), 128: (16, 64)}


def grid() -> None:
    """Time a step over batch and length, beside the arithmetic in it."""
    import numpy as np
    import tensorflow as tf

    print_head("sentences", "tokens", "ms/step", "GFLOP/step", "GFLOP/s")
    for sentences, tokens in ((n, each) for n in GRID for each in GRID[n]):
        with tempfile.TemporaryDirectory() as path:
            export_random(path, tokens)
            search = tf.saved_model.load(path).signatures["serving_default"]
            draw = np.random.default_rng(0).integers
            ids = draw(4, VOCABULARY, (sentences, tokens))
            source = tf.constant(ids, tf.int32)
            search(source=source)
            start = time.perf_counter()
            search(source=source)["ids"].numpy()
            seconds = (time.perf_counter() - start) / tokens
        # Multiplications and additions, a row a beam: the weights, and the
        # queries' and values' meeting with the source and, on average, half
        # of the slots that the beams of a sentence will write.
        weights = 6 * (6 * 512**2 + 2 * 512 * 2048) + 512 * VOCABULARY
        attention = 6 * 2 * 512 * (tokens + BEAMS * tokens / 2)
        work = 2 * BEAMS * sentences * (weights + attention) / 1e9
        figures = f"{seconds * 1e3:.1f}", f"{work:.2f}", f"{work / seconds:.0f}"
        print_row(sentences, tokens, *figures)


def main(argv=None) -> None:
    """Run what was asked for."""
    args = parse_args(argv)
    if args.serve:
        path, *numbers = args.serve
        serve(path, *map(int, numbers))
    elif args.run_dir:
        compare_real(args)
    elif args.grid:
        grid()
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(args, folder)


if __name__ == "__main__":
    main()
