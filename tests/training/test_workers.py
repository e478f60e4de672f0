"""Whole runs by two worker processes, and all that may go wrong with them."""

import json
import re
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
from forked_programs import Program
from local_workers import free_addresses, tf_config
from sample_runs import digit_arguments
from toy_trainings import arrays_of

from keras_transformer.config import JobError, UserError
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.history import read_history
from keras_transformer.training import workers

HERE = ["h1:1", "h2:2", "h3:3"]


def test_a_cluster_counts_the_chief_first():
    text = json.dumps(
        {
            "cluster": {"worker": ["h2:2", "h3:3"], "chief": ["h1:1"]},
            "task": {"type": "worker", "index": 1},
            "environment": "cloud",
        }
    )
    names, own = workers.read_cluster(text)
    assert [*names.items()] == [
        (("chief", 0), "chief 0 at h1:1"),
        (("worker", 0), "worker 0 at h2:2"),
        (("worker", 1), "worker 1 at h3:3"),
    ]
    assert own == ("worker", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        tf_config(HERE, 3),
        tf_config(["h1"], 0),
        tf_config(["h1:1", "h1:1"], 0),
    ],
)
def test_a_wrong_tf_config_is_one_sentence(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG"):
        workers.make_strategy("multiworker")


def test_a_port_that_another_process_has_is_one_sentence(monkeypatch):
    def fail():
        raise tf.errors.UnknownError(None, None, "Could not start gRPC server")

    name = "MultiWorkerMirroredStrategy"
    monkeypatch.setattr(tf.distribute, name, fail)
    monkeypatch.setenv("TF_CONFIG", tf_config(HERE, 1))
    with pytest.raises(JobError, match="^worker 1 at h2:2 .* port "):
        workers.make_strategy("auto")


def test_a_worker_that_has_read_another_run_is_told_what_differs(monkeypatch):
    sent = []

    def gather(mine, axis):
        sent.append(mine)
        return tf.concat(sent, axis)

    monkeypatch.setattr(workers, "are_several", lambda strategy: True)
    strategy = types.SimpleNamespace(gather=gather)
    for _ in range(2):
        workers.check_alike(strategy, update=7, batches="97f3")
    with pytest.raises(UserError, match="update 11, batches 97f3"):
        workers.check_alike(strategy, update=11, batches="97f3")


class Workers:
    """Workers, two or as many as `more`, each a process with its own log."""

    def __init__(self, run_dir, corpus, more=("", ""), steps=60, end_at=None):
        """The last gets a signal after a step, if `end_at` has both."""
        count = len(more)
        self.addresses = free_addresses(count)
        self.logs = [run_dir.with_suffix(f".log{i}") for i in range(count)]
        self.reports = [
            run_dir.with_suffix(f".writes{i}") for i in range(count)
        ]
        self.processes = []
        for i in range(count):
            self.logs[i].write_text("")  # Not that of workers before.
            process = Program(
                *("tests/support/watch_writes.py", run_dir, self.reports[i]),
                *arguments(corpus, run_dir, steps),
                *("--strategy", "multiworker", *more[i].split()),
                log=self.logs[i],
                TF_CONFIG=tf_config(self.addresses, i),
                END_AT="{:d} {:d}".format(*end_at)
                if end_at and i == count - 1
                else "",
            )
            self.processes.append(process)

    def end(self):
        """Wait for all; returns their exit codes and logs."""
        codes = [process.wait(timeout=300) for process in self.processes]
        return codes, [log.read_text() for log in self.logs]


def arguments(corpus, run_dir, steps):
    return [
        *digit_arguments(corpus, run_dir),
        *("--warmup-steps", "20", "--learning-rate-scale", "0.35"),
        *("--steps", str(steps), "--checkpoint-every", "7"),
        *("--validation-steps", "20", "--dropout", "0"),
    ]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run by two workers that nothing interrupted, and its logs."""
    run_dir = tmp_path_factory.mktemp("pair") / "run"
    pair = Workers(run_dir, corpus)
    codes, logs = pair.end()
    assert codes == [0, 0], logs
    return run_dir, logs, [report.read_text() for report in pair.reports]


@pytest.fixture(scope="module")
def alone(corpus, tmp_path_factory):
    """The same run by one process."""
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    assert Program("train.py", *arguments(corpus, run_dir, 60)).wait() == 0
    return run_dir


def arrays(run_dir, step):
    """The weights of a checkpoint."""
    path = run_dir / "checkpoints" / f"step-{step:09d}"
    return arrays_of(path / "model.weights.h5")


@pytest.mark.slow
def test_two_workers_have_weights_and_counts_of_one_process(finished, alone):
    one, two = (arrays(run_dir, 21) for run_dir in (alone, finished[0]))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(one[name], two[name], atol=1e-5)
    runs = map(checkpoints.list_checkpoints, (alone, finished[0]))
    newest = [kept[-1] for kept in runs]
    assert [path.name for path in newest] == ["step-000000060"] * 2
    one, two = (dict(np.load(path / "training.npz")) for path in newest)
    assert one.keys() == two.keys()
    counts = [name for name, value in one.items() if value.dtype.kind in "iu"]
    assert one[counts[0]] == 60  # The updates.
    for name in counts:
        np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.slow
def test_the_chief_alone_writes(finished, alone):
    run_dir, logs, (chief, other) = finished
    for name in ("config.json", "checkpoints", "logs", "records"):
        assert name in chief
    assert other == ""
    assert "Wrote" not in logs[1]

    def files(folder):  # TensorBoard's are named after hour and process.
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        return {name for name in names if "tfevents" not in name}

    assert files(run_dir) == files(alone)


@pytest.mark.slow
def test_the_chief_validates_as_one_process_does(finished, alone):
    one, two = (
        [row for row in read_history(run_dir) if "validation_bleu" in row]
        for run_dir in (alone, finished[0])
    )
    assert [row["step"] for row in two] == [20, 40, 60]
    for name in ("validation_loss", "validation_accuracy", "validation_bleu"):
        assert two[0][name] == pytest.approx(one[0][name], rel=1e-3)


@pytest.mark.slow
def test_a_dead_worker_and_a_signal_stop_both_and_the_command_resumes(
    corpus, finished, tmp_path
):
    run_dir = tmp_path / "run"
    pair = Workers(run_dir, corpus, end_at=(signal.SIGKILL, 10))
    codes, (log, _) = pair.end()
    assert codes == [1, -signal.SIGKILL]
    (error,) = re.findall("^error: .*", log, re.MULTILINE)
    assert f"Lost worker 1 at {pair.addresses[1]}: its process" in error
    assert "Traceback" not in log

    # On the other worker than the one that writes.
    codes, logs = Workers(run_dir, corpus, end_at=(signal.SIGTERM, 13)).end()
    assert codes == [0, 0], logs
    assert "Resuming after update 7." in logs[0]
    assert "SIGTERM: ending after this step." in logs[1]
    assert "Another worker was asked to end" in logs[0]
    assert "Stopped; the same command goes on from here." in logs[0]
    last = checkpoints.list_checkpoints(run_dir)[-1]
    assert f"Wrote {last}" in logs[0] and last.name == "step-000000020"
    assert not (run_dir / averaging.FINAL_FILE).exists()

    codes, logs = Workers(run_dir, corpus).end()
    assert codes == [0, 0], logs
    np.testing.assert_equal(arrays(run_dir, 60), arrays(finished[0], 60))


@pytest.mark.slow
def test_two_workers_run_out_of_patience_together(corpus, tmp_path):
    # Too little for six digits of a loss. What the chief is given counts.
    flags = "--patience 2 --validation-steps 3 --learning-rate-scale 1e-12"
    run_dir = tmp_path / "run"
    for said in ("ending after step 9", "is finished: 9 updates"):
        codes, logs = Workers(
            run_dir, corpus, more=(flags, f"{flags} --steps 7")
        ).end()
        assert codes == [0, 0], logs
        assert said in logs[0]
        last = checkpoints.list_checkpoints(run_dir)[-1]
        assert last.name == "step-000000009"


def test_without_workers_no_error_is_taken_for_a_lost_one():
    strategy = tf.distribute.get_strategy()
    with pytest.raises(tf.errors.UnavailableError):
        with workers.together(strategy):
            raise tf.errors.UnavailableError(None, None, "a file system")
