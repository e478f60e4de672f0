"""Time our training step and its peers' on the same work, in turn.

    PYTHONPATH=. python benchmarks/training.py --corpus F --bench F --rounds 3

--corpus has Multi30k's train.en and train.de, --bench the peers' programs.
OpenNMT-tf runs where .peers/onmt exists, PyTorch where .peers/torch does, each
in a process of its own. The table gives medians over the rounds.
"""

import argparse
import dataclasses
import pathlib
import re
import statistics
import sys
import tempfile
import time

from measuring import QUIET, parser_of, timed

ROOT = pathlib.Path(__file__).parents[1]
ONMT = ROOT / ".peers/onmt/bin/python"
TORCH = ROOT / ".peers/torch/bin/python"
PEERS = ("OpenNMT-tf", "PyTorch", "PyTorch compiled")
BASE = (32, 32, 32_000)  # Rows, tokens a row, vocabulary.
TINY = (288, 14, 8_000)


def matmul_rate():
    """Measure the best rate of 4,096-cubed products, in GFLOP/s."""
    import tensorflow as tf

    a, b = (tf.random.normal((4096, 4096)) for _ in range(2))
    product = tf.function(lambda: tf.matmul(a, b)[0, 0])
    seconds = median_seconds(lambda: float(product()), 6)
    report(gflops_per_second=2 * 4096**3 / seconds / 1e9)


def fixed_work(preset, work, replicas=1):
    """Make a model, one batch, and a dataset that repeats the batch."""
    import numpy as np
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        devices = [f"CPU:{i}" for i in range(replicas)]
        strategy = tf.distribute.MirroredStrategy(devices)
    rows, length, vocab_size = work
    with strategy.scope():
        model = make_model(preset, vocab_size)
    ids = np.random.default_rng(0).integers(4, vocab_size, (3, rows, length))
    source, target_in, target = ids.astype("int32")
    batch = ((source, target_in), target)
    from keras_transformer.training.workers import share_rows

    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    return model, batch, share_rows(strategy, dataset)


def step(preset, work, replicas=1, policy="float32"):
    """Time our step on one fixed batch, in a bare loop and in `fit`."""
    import tensorflow as tf

    tf.keras.config.set_dtype_policy(policy)
    model, batch, dataset = fixed_work(preset, work, replicas)
    rows, length, _ = work
    start = time.perf_counter()
    model.fit(dataset, steps_per_epoch=1, verbose=0)
    report(first_step=time.perf_counter() - start)
    in_fit = seconds_in_fit(model, dataset, 8)
    values = {"tokens_per_second": rows * length / in_fit}
    if replicas == 1:
        bare = tf.function(model.train_step)
        inputs = tf.nest.map_structure(tf.constant, batch)
        one = lambda: float(bare(inputs)["batch_loss"])  # noqa: E731
        one()
        values["seconds_bare"] = median_seconds(one, 8)
        values["fit_overhead"] = 100 * (in_fit / values["seconds_bare"] - 1)
        values["gflops_per_second"] = (
            flops(preset, work) / values["seconds_bare"] / 1e9
        )
    report(**values)


def multi30k(run_dir):
    """Time `tiny` on batches of Multi30k, including the input pipeline."""
    import itertools

    from keras_transformer.data import batching
    from keras_transformer.data.batch_plan import BatchPlan

    plan = BatchPlan(records(run_dir), 4_096, seed=1)
    model = make_model("tiny", TINY[2])
    steps = 100
    seconds = seconds_in_fit(model, batching.stream(plan), steps, sum)
    timed_ones = WARM_UP, WARM_UP + steps
    batches = itertools.islice(batching.stream(plan), *timed_ones)
    tokens = sum(int((target != 0).numpy().sum()) for _, target in batches)
    report(
        tokens_per_second=tokens / seconds,
        padding=100 * plan.padding_waste(),
        shapes=len(plan.shapes()),
    )


WARM_UP = 10


def seconds_in_fit(model, dataset, steps, reduce=statistics.median):
    """Time `steps` steps of `fit`, after a few others."""
    import keras

    class Clock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.times = []

        def on_train_batch_end(self, batch, logs=None):
            float(logs["batch_loss"])
            self.times.append(time.perf_counter())

    clock = Clock()
    warm_up = min(WARM_UP, steps)
    model.fit(
        dataset, steps_per_epoch=warm_up + steps, verbose=0, callbacks=[clock]
    )
    times = clock.times[warm_up - 1 :]
    return reduce(b - a for a, b in zip(times, times[1:], strict=False))


def make_model(preset, vocab_size):
    import keras

    from keras_transformer.losses import SmoothedCrossEntropy
    from keras_transformer.model import Transformer
    from keras_transformer.optimizers import Adam

    keras.utils.set_random_seed(1)
    model = Transformer.from_preset(preset, vocab_size=vocab_size)
    model.compile(Adam(1e-4), SmoothedCrossEntropy(0.1))
    model.optimizer.build(model.trainable_variables)
    return model


def flops(preset, work):
    """Count 6 FLOPs for each parameter and target token, the rule of thumb."""
    from keras_transformer.presets import PRESETS, parameters

    rows, length, vocab_size = work
    sizes = dataclasses.replace(PRESETS[preset].model, vocab_size=vocab_size)
    return 6 * parameters(sizes) * rows * length


def records(run_dir):
    """Return the tokenised training split, made on the first call."""
    from keras_transformer.data import corpora
    from keras_transformer.data.records import TokenisedCorpus
    from keras_transformer.data.tokenizer import Tokenizer

    folder = pathlib.Path(run_dir)
    if (folder / "records").exists():
        return TokenisedCorpus.load(folder / "records")
    corpus = corpora.open_corpus((folder / "corpus").read_text(), "en", "de")
    path = folder / "tokenizer.model"
    if not path.exists():
        sentences = (text for pair in corpus.pairs("train") for text in pair)
        Tokenizer.train(sentences, TINY[2], path)
    return TokenisedCorpus.build(
        corpus.pairs("train"),
        Tokenizer.load(path),
        folder / "records",
        max_length=256,
    )


def write_for_opennmt(run_dir):
    """Write the same pieces as words of text files."""
    import numpy as np

    corpus, folder = records(run_dir), pathlib.Path(run_dir)
    words = ["<blank>", "<s>", "</s>", *(f"t{i}" for i in range(3, TINY[2]))]
    (folder / "vocab.txt").write_text("\n".join(words))
    for name, side in (("source", corpus.source), ("target", corpus.target)):
        with open(folder / f"{name}.txt", "w") as file:
            for i in range(len(corpus)):
                (ids,) = side.padded(np.array([i]), 256)
                file.write(" ".join(f"t{n}" for n in ids if n > 3) + "\n")


def median_seconds(function, times):
    function()
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def report(**values):
    for name, value in values.items():
        print(f"{name}={value:.4f}")


def run(command):
    """Run a process; return its report and its peak memory."""
    done = timed(command, cwd=ROOT, env={**QUIET, "PYTHONPATH": str(ROOT)})
    found = dict(re.findall(r"(\w+)=([\d.-]+)", done.output))
    if speed := re.search(r"(\d+) target tokens/s", done.output):
        found["tokens_per_second"] = speed[1]
    found["peak_gb"] = done.megabytes / 1024
    return {name: float(value) for name, value in found.items()}


def measurements(bench, run_dir):
    """Name → command."""
    this = [sys.executable, pathlib.Path(__file__).resolve()]
    found = {
        name: [*this, "--only", name, "--run-dir", run_dir] for name in PARTS
    }
    if ONMT.exists():
        peer = [ONMT, pathlib.Path(__file__).with_name("opennmt_multi30k.py")]
        found |= {
            "base OpenNMT-tf": [ONMT, bench / "opennmt_train.py", 32, 32, 8],
            "tiny OpenNMT-tf": [*peer, run_dir, 0, 20],
            "multi30k OpenNMT-tf": [*peer, run_dir, 4_096, 100],
        }
    if TORCH.exists():
        peer = [TORCH, bench / "torch_train.py", 32, 32, 8]
        found["base PyTorch"] = peer
        found["base PyTorch compiled"] = [*peer, "compile"]
    return found


PARTS = {
    "matmul": lambda _: matmul_rate(),
    "base": lambda _: step("base", BASE),
    "base bfloat16": lambda _: step("base", BASE, policy="mixed_bfloat16"),
    "base 2 replicas": lambda _: step("base", BASE, replicas=2),
    "tiny": lambda _: step("tiny", TINY),
    "tiny 2 replicas": lambda _: step("tiny", TINY, replicas=2),
    "multi30k": multi30k,
}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--bench", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, help="in this process")
    parser.add_argument("--run-dir", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        return PARTS[args.only](args.run_dir)
    if not (args.corpus and args.bench):
        parser.error("--corpus and --bench are needed")
    with tempfile.TemporaryDirectory() as run_dir:
        corpus = str(args.corpus.resolve())
        pathlib.Path(run_dir, "corpus").write_text(corpus)
        write_for_opennmt(run_dir)
        commands = measurements(args.bench.resolve(), run_dir)
        rounds = {name: [] for name in commands}
        for number in range(args.rounds):
            for name, command in commands.items():
                rounds[name].append(run(command))
                print(number + 1, name, rounds[name][-1], file=sys.stderr)
    for name, values in rounds.items():
        medians = {
            key: statistics.median(value[key] for value in values)
            for key in values[0]
        }
        rate = medians.get("tokens_per_second")
        for peer in PEERS:
            if of_peer := rounds.get(f"{name} {peer}"):
                medians[f"times {peer}"] = rate / statistics.median(
                    value["tokens_per_second"] for value in of_peer
                )
        shown = "  ".join(f"{k} {v:,.2f}" for k, v in medians.items())
        print(f"{name:22s} {shown}")


if __name__ == "__main__":
    main()
