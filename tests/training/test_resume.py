"""A run that is killed, wherever, ends as one that never was."""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest
from sample_runs import write_digits

from keras_transformer.runs import averaging, checkpoints, history
from keras_transformer.runs.result import final_result

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path(__file__).parents[1] / "train_sessions.py"

WAYS = {
    "one replica": {"replicas": 1, "argv": []},
    "two replicas": {
        "replicas": 2,
        "argv": ["--strategy", "mirrored", "--accumulate", "2"]
        + ["--ema", "0.9", "--bpe-dropout", "0.3"],
    },
}


def kill(after="", event=0, delay=0.0):
    number = signal.SIGKILL
    return {"signal": number, "after": after, "event": event, "delay": delay}


def kill_somewhere(seed):
    """Anywhere in the training, at a file or between two."""
    draw = random.Random(seed)
    return kill("history.csv", draw.randrange(3, 47), draw.random() / 20)


# A resumed session reads the history (0) and rewrites it (1 write, 2 flush,
# 3 rename, 4 flush the folder); then comes the line after its first step.
TERMINATE = {"signal": signal.SIGTERM, "after": "history.csv", "event": 5}

# A checkpoint takes eleven operations (0 make its folder, 1 write the
# optimizer, 2 and 3 read for the checksums, 4 write the state, 5 to 8 flush the
# files and their folder, 9 rename, 10 flush the folder of all), the first of a
# run two more.
WRITE = "-step-"

ENDS = {
    "one replica": [
        kill("sentences.txt", 1),  # In the midst of the vocabulary,
        kill("records/train.unfinished", 6),  # of the token records,
        kill("train.unfinished/records.json", 3),  # which get their name,
        kill("-config"),  # and of the configuration.
        *[kill(WRITE, event) for event in (2 + 2, 13 + 4, 11 + 9, 11 + 10)],
        kill("-old-", 1),  # An old checkpoint is half gone.
        # One loses its moments: the state without them is written, or renamed.
        *[kill("-state.json", event) for event in (1, 3)],
        *[kill_somewhere(seed) for seed in (1, 2)],
    ],
    "two replicas": [
        kill(WRITE, 13 + 3),
        TERMINATE,
        kill_somewhere(4),
    ],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directories of a whole and of an interrupted run, for each way."""
    folder = tmp_path_factory.mktemp("sessions")
    corpus = write_digits(tmp_path_factory.mktemp("digits"), train=53, val=7)
    programs, directories = [], {}
    for way, how in WAYS.items():
        pair = [folder / f"{way} {end}" for end in ("whole", "killed")]
        plan = [
            {
                **how,
                "argv": ["--corpus", str(corpus), *how["argv"]],
                "run_dir": str(run_dir),
                "ends": ends,
            }
            for run_dir, ends in zip(pair, ([], ENDS[way]), strict=True)
        ]
        path = folder / f"{way}.plan"
        path.write_text(json.dumps(plan))
        # Both ways at the same time.
        programs.append(
            subprocess.Popen(
                [sys.executable, SCRIPT, path],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        )
        directories[way] = pair
    for program in programs:
        assert program.wait() == 0
    return directories


def sessions(run_dir):
    return json.loads(run_dir.with_suffix(".json").read_text())


def arrays(run_dir):
    """All that the newest checkpoint and the averaged weights hold."""
    newest = checkpoints.list_checkpoints(run_dir)[-1]
    assert newest.name == "step-000000029"
    with np.load(newest / "training.npz") as file:
        found = dict(file)
    for path in (newest / "model.weights.h5", run_dir / "final.weights.h5"):
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item, path=path: (
                    found.update({f"{path.name}/{name}": item[()]})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    return found


def validation(run_dir):
    """The figures of the one validation in the history."""
    rows = history.read_history(run_dir)
    (row,) = (row for row in rows if "validation_loss" in row)
    return {n: x for n, x in row.items() if n.startswith("validation")}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_run_killed_again_and_again_ends_the_same_bit_for_bit(runs, way):
    whole, killed = map(arrays, runs[way])
    assert whole.keys() == killed.keys()
    # Weights and their average twice over, optimizer, seeds of the dropout.
    assert len(whole) > 100
    for name, values in whole.items():
        np.testing.assert_array_equal(values, killed[name], err_msg=name)
    one, other = map(validation, runs[way])
    assert one == other and one["validation_loss"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_session_ended_as_it_should(runs, way):
    whole, killed = map(sessions, runs[way])
    expected = [
        0 if end["signal"] == signal.SIGTERM else -end["signal"]
        for end in ENDS[way]
    ]
    assert [session["code"] for session in whole] == [0]
    assert [session["code"] for session in killed] == [*expected, 0]


@pytest.mark.slow
def test_a_run_with_a_moving_average_ends_with_that(runs):
    run_dir = runs["two replicas"][0]
    newest = checkpoints.list_checkpoints(run_dir)[-1]
    with np.load(newest / "training.npz") as file:
        expected = [
            file[f"ema/{i}"]
            for i in range(len(file.files))
            if f"ema/{i}" in file
        ]
    averaged = averaging.load_average(run_dir).get_weights()
    last = averaging.load_model(run_dir, average=1).get_weights()
    result = final_result(run_dir)
    assert result.averages == "moving average of the weights"
    better = averaged if result.better == "average" else last
    found = averaging.load_model(run_dir).get_weights()
    for arrays_of_one in zip(
        expected, averaged, last, better, found, strict=True
    ):
        ema, average, trained, kept, loaded = arrays_of_one
        np.testing.assert_array_equal(ema, average)
        np.testing.assert_array_equal(kept, loaded)
        assert (average != trained).any()


@pytest.mark.slow
def test_what_a_killed_session_leaves_is_removed_by_the_next(runs):
    *killed, last = sessions(runs["one replica"][1])
    left = [
        {f"/{x}" for x in session["files"] if ".partial-" in x}
        for session in killed
    ]
    names = set().union(*left)
    for end in ("/sentences.txt", "-step-000000003", "-old-step-000000003"):
        assert any(name.endswith(end) for name in names), end
    assert {"records/train.unfinished/source.ids"} <= set(killed[1]["files"])
    assert not any(".partial-" in file for file in last["files"])
    assert not any(".unfinished" in file for file in last["files"])


@pytest.mark.slow
def test_a_termination_on_two_replicas_writes_a_checkpoint_first(runs):
    run_dir = runs["two replicas"][1]
    log = run_dir.with_suffix(".log").read_text()
    session = sessions(run_dir)[ENDS["two replicas"].index(TERMINATE)]
    names = [re.findall(r"/step-(\d+)$", x) for x in session["files"]]
    steps = sorted(int(name[0]) for name in names if name)
    # The session before was killed in its second checkpoint, and this one
    # told to end after its first step: it ends with the next.
    assert steps == [3, 5]
    assert "Stopped; the same command goes on from here." in log
