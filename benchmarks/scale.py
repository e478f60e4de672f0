"""Run each stage of a training on corpora of up to WMT's size.

    PYTHONPATH=. python benchmarks/scale.py --corpus F --work W \
        --pairs 10000 100000 1000000 4500000 36000000 --picture P.png

The folder F holds the Multi30k text (train.en, train.de, val.en, val.de). W,
outside of the repository, gets a corpus for every number of pairs: the lines
of F over and over, each with its words in another order. Each stage is a
process of its own, and finds nothing in the cache of the file system that it
must read again. What was measured is kept in W/scale.json, from which the table
and the picture are made.

    PYTHONPATH=. python benchmarks/scale.py --stage shapes

plans two million pairs as long as WMT's on several ladders of lengths.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import measuring
from measuring import json_of, memory, parser_of

ROOT = pathlib.Path(__file__).parents[1]
LANGUAGES = ("en", "de")
PEER_PAIRS = 50_000
STAGES = ("vocabulary", "tokenising", "planning", "ten steps", "resume")


def write_corpus(lines_of, folder, pairs, seed=1):
    """Write `pairs` lines a language: those given, their words shuffled."""
    import numpy as np

    folder.mkdir(parents=True)
    for number, language in enumerate(LANGUAGES):
        name = f"val.{language}"
        shutil.copyfile(lines_of / name, folder / name)
        lines = (lines_of / f"train.{language}").read_bytes().splitlines()
        words = [line.split() for line in lines]
        line_of = np.repeat(np.arange(len(words)), [len(w) for w in words])
        flat = np.array([word for line in words for word in line], object)
        ends = np.append(line_of[1:] != line_of[:-1], True)
        text = np.empty(2 * len(flat), object)
        text[1::2] = np.where(ends, b"\n", b" ")
        random = np.random.default_rng([seed, number])
        left = pairs
        with open(folder / f"train.{language}", "wb") as file:
            while left > 0:
                order = np.argsort(line_of + random.random(len(flat)))
                text[0::2] = flat[order]
                copy = b"".join(text)
                if left < len(lines):
                    copy = b"".join(copy.splitlines(keepends=True)[:left])
                file.write(copy)
                left -= len(lines)


def prepared(args):
    """Prepare what the stages before the model start from."""
    from keras_transformer.training import preparation
    from keras_transformer.training.request import understand

    asked = understand(
        corpus=str(args.corpus), preset="tiny", run_dir=args.run_dir
    )
    preparation.check_beginning(asked)
    return asked, *preparation.prepare_vocabulary(asked, args.run_dir)


def vocabulary(args):
    prepared(args)
    return {}


def tokenising(args):
    from keras_transformer.training.preparation import records_of

    asked, run, tokenizer = prepared(args)
    start = time.perf_counter()
    train = records_of(asked, run, tokenizer, run.train_split)
    read = len(train) + train.dropped + train.empty
    return {"pairs_per_second": read / (time.perf_counter() - start)}


def planning(args):
    from keras_transformer.data.batch_plan import BatchPlan
    from keras_transformer.data.records import TokenisedCorpus
    from keras_transformer.presets import PRESETS

    records = TokenisedCorpus.load(args.run_dir / "records/train")
    start = time.perf_counter()
    plan = BatchPlan(records, PRESETS["tiny"].training.batch_tokens, seed=1)
    planned = time.perf_counter()
    plan.epoch(0)
    return {
        "plan": planned - start,
        "epoch": time.perf_counter() - planned,
        "batches": len(plan),
    }


def peers(args):
    """Measure pairs/s in bulk, by sentencepiece and by the operator."""
    from itertools import islice

    from keras_transformer.data.tokenizer import Tokenizer

    sides = [
        list(islice(open(args.corpus / f"train.{name}"), PEER_PAIRS))
        for name in LANGUAGES
    ]
    texts = [line.rstrip("\n") for side in sides for line in side]
    chunks = [texts[i : i + 8192] for i in range(0, len(texts), 8192)]
    model = args.run_dir / "tokenizer.model"
    tokenizer = Tokenizer.load(model)
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    found = {}
    for name, encode in (
        ("ours", tokenizer.tokenize_many),
        ("sentencepiece 1 thread", lambda c: pieces.encode(c, num_threads=1)),
        ("sentencepiece 2 threads", lambda c: pieces.encode(c, num_threads=2)),
        ("tensorflow-text", tokenizer.tokenize),
    ):
        start = time.perf_counter()
        for chunk in chunks:
            encode(chunk)
        found[name] = len(texts) / 2 / (time.perf_counter() - start)
    return found


def shapes(_):
    """Count shapes and padding of growths, for lengths like WMT's."""
    import numpy as np

    from keras_transformer.data.batch_plan import BatchPlan
    from keras_transformer.data.records import Side, TokenisedCorpus

    random = np.random.default_rng(1)
    source = np.exp(random.normal(3.15, 0.68, 2_000_000))
    target = source * np.exp(random.normal(0.03, 0.22, len(source)))
    lengths = np.maximum(2, np.stack([source, target]).round()).astype("i4") + 1
    lengths = lengths[:, (lengths <= 256).all(axis=0)]
    none = np.zeros(1)
    corpus = TokenisedCorpus(*(Side(none, side) for side in lengths))
    found = {}
    for growth in (1.06, 1.1, 1.15, 1.2, 1.3):
        plan = BatchPlan(corpus, 25_000, 1, length_growth=growth)
        count, waste = len(plan.shapes()), plan.padding_waste()
        minutes = (15 * count + 12 * 3600 * waste) / 60
        found[growth] = (count, round(100 * waste, 1), round(minutes))
    return found


def steps(args, number, pattern):
    """Train to so many updates; seconds until a line of the log matches."""
    command = [sys.executable, ROOT / "train.py", "--preset", "tiny"]
    command += ["--corpus", args.corpus, "--run-dir", args.run_dir]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*map(str, command), "--steps", str(number)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    seconds, lines, silence, last = None, [], (0.0, ""), start
    for line in process.stderr:
        now = time.perf_counter()
        silence, last = max(silence, (now - last, line)), now
        lines.append(line)
        if seconds is None and re.search(pattern, line):
            seconds = now - start
            if number > 10:
                process.send_signal(signal.SIGKILL)
    *_, used = os.wait4(process.pid, 0)
    process.returncode = 0  # It has ended, however that was.
    if seconds is None:
        sys.exit("".join(lines))
    gigabytes = used.ru_maxrss / 2**20
    return {"seconds": seconds, "gb": gigabytes, "silence": silence}


def forget(*folders):
    """Take files out of the file system's cache."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    number, how = file.fileno(), os.POSIX_FADV_DONTNEED
                    os.fsync(number)
                    os.posix_fadvise(number, 0, 0, how)


IN_PROCESS = {
    each.__name__: each
    for each in (vocabulary, tokenising, planning, peers, shapes)
}


def run_stage(stage, args):
    """Run one stage in its own process; return seconds, memory and more."""
    forget(args.corpus, args.run_dir)
    if stage == "ten steps":
        return steps(args, 10, r"step 10/10 ")
    if stage == "resume":
        return steps(args, 20, r"First step after")
    start = time.perf_counter()
    flags = ["--corpus", args.corpus, "--run-dir", args.run_dir]
    found = json_of(__file__, "--stage", stage, *flags)
    return {"seconds": time.perf_counter() - start, **found}


def measure(args, pairs):
    """Measure all stages on a corpus of this size, each once."""
    corpus = args.work / "corpora" / str(pairs)
    if not corpus.exists():
        write_corpus(args.corpus, corpus, pairs)
    run_dir = args.work / "runs" / str(pairs)
    shutil.rmtree(run_dir, ignore_errors=True)
    here = argparse.Namespace(corpus=corpus, run_dir=run_dir)
    found = {}
    for stage in (*STAGES, "peers"):
        found[stage] = run_stage(stage, here)
        print(pairs, stage, found[stage], file=sys.stderr, flush=True)
    shutil.rmtree(run_dir)
    return found


def table(results):
    """Write seconds and peak memory by stage in Markdown."""
    measuring.print_head("pairs", *STAGES)
    for pairs, found in results.items():
        took = (found[stage] for stage in STAGES)
        cells = (f"{x['seconds']:.1f} s, {x['gb']:.2f} GB" for x in took)
        measuring.print_row(f"{int(pairs):,}", *cells)


def picture(results, path):
    """Time and memory against the number of pairs, and what linear means."""
    figure, panels = measuring.subplots(1, 2, figsize=(10, 4.2))
    pairs = [int(number) for number in results]
    labels = {"seconds": "seconds", "gb": "peak memory, GB"}
    for axes, (key, label) in zip(panels, labels.items(), strict=True):
        highest = 0
        for stage in STAGES:
            values = [found[stage][key] for found in results.values()]
            axes.loglog(pairs, values, "o-", label=stage)
            highest = max(highest, *values)
        linear = [highest * number / pairs[-1] for number in pairs]
        axes.loglog(pairs, linear, "k:", label="linear")
        axes.set_ylim(bottom=min(values) / 10)
        axes.set_xlabel("pairs")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(path, dpi=100)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, nargs="*", default=[])
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--stage", choices=IN_PROCESS, help="in this process")
    parser.add_argument("--run-dir", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        found = IN_PROCESS[args.stage](args)
        print(json.dumps({"gb": memory("VmHWM") / 2**30, **found}))
        return
    if not args.work or (args.pairs and not args.corpus):
        parser.error("--corpus and --work are needed")
    file = args.work / "scale.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    for pairs in args.pairs:
        results[str(pairs)] = measure(args, pairs)
        results = dict(sorted(results.items(), key=lambda item: int(item[0])))
        file.write_text(json.dumps(results, indent=1))
    table(results)
    if args.picture:
        picture(results, args.picture)


if __name__ == "__main__":
    main()
