"""A run that is killed, wherever, ends as one that never was."""

import json
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from forked_programs import Program
from sample_runs import write_digits
from toy_trainings import arrays_of

from keras_transformer.runs import checkpoints, history

# The number of replicas, and arguments of `train`.
WAYS = {
    "one replica": (1,),
    "two replicas": (*(2, "--strategy", "mirrored", "--accumulate", "2"),),
    "every option": (
        *(1, "--accumulate", "2"),
        *("--validation-steps", "6", "--patience", "97"),
        *("--target-bleu", "inf"),
    ),
}


def kill(after="", event=0, delay=0.0):
    number = signal.SIGKILL
    return {"number": number, "after": after, "event": event, "delay": delay}


def kill_somewhere(seed):
    """Anywhere in the training, at a file or between two."""
    draw = random.Random(seed)
    return kill("history.csv", draw.randrange(3, 47), draw.random() / 20)


# A session rewrites the history (0 write, 1 flush, 2 rename, 3 flush the
# folder); then comes the line after its first step.
TERMINATE = {**kill("-history.csv", 4), "number": signal.SIGTERM}
PRESS_CTRL_C = {**TERMINATE, "number": signal.SIGINT}

# A checkpoint takes eleven operations (0 make its folder, 1 write the
# optimizer, 2 and 3 read for the checksums, 4 write the state, 5 to 8 flush the
# files and their folder, 9 rename, 10 flush the folder of all), the first of a
# run two more.
WRITE = "-step-"

ENDS = {
    "one replica": [
        kill("sentences.txt", 1),  # In the midst of the vocabulary,
        kill("-config"),  # of the configuration,
        kill("-train/target.lengths", 3),  # of the token records,
        kill("-watched.json", 1),  # and of what validation watches.
        *[kill(WRITE, event) for event in (2 + 2, 13 + 4, 11 + 9, 11 + 10)],
        kill("-old-", 1),  # An old checkpoint is half gone.
        PRESS_CTRL_C,
        *[kill_somewhere(seed) for seed in (1, 2, 4)],
    ],
    "two replicas": [kill(WRITE, 13 + 3), TERMINATE],
    "every option": [
        kill(WRITE, 13 + 3),
        TERMINATE,
        # What it found is written into its checkpoint.
        kill("-state.json", 1),
        kill_somewhere(5),
    ],
}


def train(corpus, run_dir, way, ends):
    """Train in sessions that end so, and in a last one that nothing ends.

    Each has its exit code, the files that it left, and its log.
    """
    replicas, *more = WAYS[way]
    sessions = []
    for i, end in enumerate([*ends, None]):
        log = run_dir.with_suffix(f".log{i}")
        program = Program(
            *("tests/support/train_session.py", replicas, json.dumps(end)),
            *(run_dir, "--corpus", corpus, *more),
            log=log,
        )
        code = program.wait()
        files = [str(x.relative_to(run_dir)) for x in run_dir.rglob("*")]
        session = SimpleNamespace(code=code, files=files, log=log.read_text())
        sessions.append(session)
    return SimpleNamespace(run_dir=run_dir, sessions=sessions)


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """A whole and an interrupted run, in one of `WAYS`, at the same time."""
    way = request.param
    folder = tmp_path_factory.mktemp("sessions")
    corpus = write_digits(tmp_path_factory.mktemp("digits"), train=53, val=7)

    def sessions(name, ends):
        return train(corpus, folder / name, way, ends)

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(sessions, ("whole", "killed"), ([], ENDS[way]))]


def in_way(*ways):
    return pytest.mark.parametrize("runs", ways, indirect=True, scope="module")


EVERY_MOMENT = pytest.param("one replica", marks=pytest.mark.slow)
EVERY_OPTION = pytest.param("every option", marks=pytest.mark.slow)
TWO_MOMENTS = pytest.param(
    "two replicas",
    marks=pytest.mark.stands_for("trainings that are killed, and replicas"),
)


def arrays(run):
    """All that the newest checkpoint and the averaged weights hold."""
    run_dir = run.run_dir
    newest = checkpoints.list_checkpoints(run_dir)[-1]
    assert newest.name == "step-000000029"
    with np.load(newest / "training.npz") as file:
        found = dict(file)
    for path in (newest / "model.weights.h5", run_dir / "final.weights.h5"):
        found |= {f"{path.name}/{k}": x for k, x in arrays_of(path).items()}
    return found


def validations(run):
    """The figures of each validation in the history, by update."""
    return {
        row["step"]: {n: x for n, x in row.items() if "validation" in n}
        for row in history.read_history(run.run_dir)
        if "validation_loss" in row
    }


@in_way(TWO_MOMENTS, EVERY_MOMENT, EVERY_OPTION)
def test_a_run_killed_again_and_again_ends_the_same_bit_for_bit(runs, request):
    whole, killed = map(arrays, runs)
    # Weights and their average twice over, optimizer, seeds of the dropout.
    assert len(whole) > 100
    np.testing.assert_equal(killed, whole)
    one, other = map(validations, runs)
    assert one == other
    is_often = request.node.callspec.params["runs"] == "every option"
    assert list(one) == [*([6, 12, 18, 24] if is_often else []), 29]


@in_way(TWO_MOMENTS, EVERY_MOMENT, EVERY_OPTION)
def test_every_session_ended_as_it_should(runs, request):
    way = request.node.callspec.params["runs"]
    whole, killed = ([session.code for session in run.sessions] for run in runs)
    codes = {signal.SIGTERM: 0, signal.SIGINT: 130}
    expected = [codes.get(n := end["number"], -n) for end in ENDS[way]]
    assert whole == [0]
    assert killed == [*expected, 0]
    for end, session in zip(ENDS[way], runs[1].sessions, strict=False):
        said = "Stopped; the same command goes on from here." in session.log
        assert said == (end["number"] in codes)


def checkpoints_of(session):
    names = [re.findall(r"/step-(\d+)$", x) for x in session.files]
    return sorted(int(name[0]) for name in names if name)


@in_way(EVERY_MOMENT)
def test_what_a_killed_session_leaves_is_removed_by_the_next(runs):
    *killed, last = runs[1].sessions
    files = (f"/{x}" for session in killed for x in session.files)
    names = {name for name in files if ".partial-" in name}
    for end in (
        *("/sentences.txt", "-train/source.ids", "-watched.json"),
        *("-step-000000003", "-old-step-000000003"),
    ):
        assert any(name.endswith(end) for name in names), end
    assert not any(".partial-" in file for file in last.files)


@in_way(TWO_MOMENTS, EVERY_OPTION)
def test_a_termination_writes_a_checkpoint_the_next_replaces(runs, request):
    way = request.node.callspec.params["runs"]
    i = ENDS[way].index(TERMINATE)
    ended, following = runs[1].sessions[i : i + 2]
    # The session before was killed in its second checkpoint, and this one
    # told to end as it writes the line after its first step: it ends with that.
    assert checkpoints_of(ended) == [3, 4]
    assert re.search(r"Wrote .*/step-000000004\b", ended.log)
    expected = {"two replicas": [24, 27, 29], "every option": [3, 6]}[way]
    assert checkpoints_of(following) == expected
