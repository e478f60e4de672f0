"""Kill, damage and starve toy trainings, and see what becomes of them.

    PYTHONPATH=.:tests/support python benchmarks/stress.py kills --count 100
    PYTHONPATH=.:tests/support python benchmarks/stress.py damage --count 1
    PYTHONPATH=.:tests/support python benchmarks/stress.py full_disk --count 14

`full_disk` mounts a tmpfs of its own for every size, which takes root's rights
on Linux. Every line says what was done and what became of it; the exit code is
1 where a promise of the README was broken.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
from forked_programs import Program
from sample_runs import write_digits

from keras_transformer.runs import checkpoints

TWO = ["--strategy", "mirrored", "--accumulate", "2", "--ema", "0.9"]


class Bench:
    """A corpus, the flags of a training, and its undisturbed result."""

    def __init__(self, folder, replicas, flags):
        self.folder = folder
        self.replicas = replicas
        (folder / "text").mkdir()
        write_digits(folder / "text", train=53, val=7)
        self.flags = ["--corpus", str(folder / "text"), *flags]
        self.broken = 0
        begun = time.monotonic()
        assert self.train(folder / "whole") == 0
        self.seconds = time.monotonic() - begun
        self.expected = result(folder / "whole")

    def train(self, run_dir, end=None, log=None):
        """Train one session; `end` is as in `train_session.py`."""
        return Program(
            *("tests/support/train_session.py", self.replicas, json.dumps(end)),
            *(run_dir, *self.flags),
            log=log or run_dir.with_suffix(".log"),
        ).wait()

    def differs(self, run_dir):
        """Describe how a finished run differs from the undisturbed one."""
        found = result(run_dir)
        if found.keys() != self.expected.keys():
            return "other files"
        for name, values in self.expected.items():
            if not np.array_equal(values, found[name]):
                return name
        return None

    def report(self, is_kept, what):
        self.broken += not is_kept
        print("kept  " if is_kept else "BROKEN", what, flush=True)


def result(run_dir):
    """Read every array of the newest checkpoint and the final weights."""
    newest = checkpoints.list_checkpoints(run_dir)[-1]
    with np.load(newest / "training.npz") as file:
        found = {**file, "step": checkpoints.step_of(newest)}

    def take(name, item):
        if isinstance(item, h5py.Dataset):
            found[f"{item.file.filename.rsplit('/')[-1]}/{name}"] = item[()]

    for path in (newest / "model.weights.h5", run_dir / "final.weights.h5"):
        with h5py.File(path) as file:
            file.visititems(take)
    return found


def kills(folder, count, seed):
    """Kill a training at any moment, then run the same command."""
    bench = Bench(folder, 2, TWO)
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        run_dir = folder / f"killed-{number}"
        # From its first file on: what comes before is Python's start.
        delay = draw.uniform(0, bench.seconds)
        end = {"number": signal.SIGKILL, "delay": delay}
        code = bench.train(run_dir, end)
        left = [p.name for p in checkpoints.list_checkpoints(run_dir)]
        again = bench.train(run_dir)
        other = "no result" if again else bench.differs(run_dir)
        at = f"killed after {delay:.2f} s" if code == -9 else "ended before"
        bench.report(
            again == 0 and not other,
            f"{number}: {at}, {left[-1] if left else 'no checkpoint'} left; "
            f"{f'differs in {other}' if other else 'ends the same'}",
        )
        shutil.rmtree(run_dir)
    return bench


def sentence(log):
    """Return a command's last sentence, or what is wrong with it."""
    text = log.read_text(errors="replace")
    errors = re.findall(r"^error: .*", text, re.M)
    if "Traceback" in text or len(errors) != 1:
        return None
    return errors[0]


def full_disk(folder, count, seed):
    """Train on disks of every size up to enough, then again with room."""
    bench = Bench(folder, 2, TWO)
    needed = int(
        subprocess.check_output(["du", "-sk", folder / "whole"]).split()[0]
    )
    for number in range(count):
        size = 8 + (needed * number) // count  # kB; a tmpfs rounds up to 4.
        disk = folder / "disk"
        with small_disk(disk, size) as grow:
            run_dir = disk / "run"
            log = folder / f"full-{number}.log"
            code = bench.train(run_dir, log=log)
            said = sentence(log)
            left = [p.name for p in checkpoints.list_checkpoints(run_dir)]
            good = [p.name for p, _ in whole_checkpoints(run_dir, left)]
            grow()
            again = bench.train(run_dir, log=folder / f"again-{number}.log")
            other = "no result" if again else bench.differs(run_dir)
            is_told = code == 0 or (code == 1 and said is not None)
            bench.report(
                is_told and good == left and not other,
                f"{size} kB: exit {code}, {said or 'nothing said'}; "
                f"{len(left)} checkpoints, {len(good)} whole; with room "
                f"{f'differs in {other}' if other else 'ends the same'}",
            )
    return bench


def whole_checkpoints(run_dir, names):
    if not names:
        return []
    return checkpoints.newest_undamaged(run_dir, len(names))


@contextlib.contextmanager
def small_disk(path, kilobytes):
    path.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs"]
    subprocess.run([*mount, path], check=True)
    try:
        yield lambda: subprocess.run(
            ["mount", "-o", "remount,size=64m", path], check=True
        )
    finally:
        subprocess.run(["umount", path], check=True)


def flip(path, draw):
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def truncate(path, draw):
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def remove(path, draw):
    path.unlink()


def damage(folder, count, seed):
    """Flip, cut or remove each file of a run, then translate and train.

    A run that is told to end in the midst goes on from it; a finished one
    translates.
    """
    bench = Bench(folder, 1, [])
    halfway = folder / "halfway"
    # Ends after a checkpoint in the midst.
    end = {"number": signal.SIGTERM, "after": "step-000000015", "delay": 0.05}
    assert bench.train(halfway, end) == 0
    sources = folder / "sources.txt"
    sources.write_text("one two\nthree four five\n")
    expected = translation(folder, folder / "whole", sources)
    assert expected[0] == 0, expected
    outcomes = collections.Counter()
    for state, use, path, how, number in cases(folder, count):
        run_dir = folder / "damaged"
        shutil.copytree(folder / state, run_dir)
        log = run_dir.with_suffix(".log")
        log.unlink(missing_ok=True)
        how(run_dir / path, random.Random(f"{seed} {path} {number}"))
        if use == "train":
            code = bench.train(run_dir)
            is_same = not code and not bench.differs(run_dir)
        else:
            found = translation(folder, run_dir, sources)
            code, is_same = found[0], found == expected
        became = "the same" if is_same else sentence(log) if code else "OTHER"
        is_kept = is_same or (code in (1, 2) and became is not None)
        bench.report(is_kept, f"{use}, {path} {how.__name__}: {became}")
        outcomes[use, how.__name__, "same" if is_same else f"exit {code}"] += 1
        shutil.rmtree(run_dir)
    for outcome, times in sorted(outcomes.items()):
        print(*outcome, times)
    return bench


def cases(folder, count):
    """List what to damage, how, and what to do then."""
    for state, use in (("halfway", "train"), ("whole", "translate")):
        for path in files_of(folder / state, use):
            for how in (flip, truncate, remove):
                for number in range(1 if how == remove else count):
                    yield state, use, path, how, number


def files_of(run_dir, use):
    """List the files that a later session or command reads."""
    unread = ["logs/events.out.*", "curve.png"]
    if use == "translate":
        unread += ["logs/*", "records/*/*", "checkpoints/*/*"]
    return sorted(
        str(path.relative_to(run_dir))
        for path in run_dir.rglob("*")
        if path.is_file() and not any(map(path.match, unread))
    )


def translation(folder, run_dir, sources):
    """Run `translate`; return its exit code and the text."""
    output = folder / "translated.txt"
    output.unlink(missing_ok=True)
    code = Program(
        *("keras_transformer/__main__.py", "translate", "--run-dir", run_dir),
        *("--input", sources, "--output", output),
        log=run_dir.with_suffix(".log"),
    ).wait()
    return code, output.read_text() if output.exists() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = {f.__name__: f for f in (kills, full_disk, damage)}
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = kinds[args.what](pathlib.Path(folder), args.count, args.seed)
    minutes = (time.monotonic() - begun) / 60
    print(f"{bench.broken} broken; {minutes:.1f} minutes")
    sys.exit(bench.broken > 0)


if __name__ == "__main__":
    main()
