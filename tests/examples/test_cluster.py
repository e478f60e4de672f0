"""Three workers on this machine: preempted, started again, and one killed.

Slurm is not here: `fake_srun.py` stands for it, and a shell script for
`scontrol`. The script and what makes TF_CONFIG are those of the example. The
manifest for Kubeflow is checked as far as that goes without Kubernetes.
"""

import contextlib
import os
import pathlib
import re
import runpy
import signal
import socket
import subprocess
import sys

import jsonschema
import pytest
import tensorflow as tf
import yaml
from local_workers import free_ports
from project_table import ROOT
from sample_runs import write_digits
from waiting import until

EXAMPLES = ROOT / "examples" / "cluster"
SCONTROL = """#!/bin/sh
case "$1" in
    show) echo 127.0.0.1 ;;
    requeue) echo "$2" >> "$FAKE_SLURM/requeued" ;;
esac
"""


@pytest.mark.parametrize("task", [0, 3, 6])
def test_tf_config_is_what_tensorflow_makes_for_slurm(task, monkeypatch):
    environment = {
        "SLURM_STEP_NODELIST": "m5,n[08-10]",
        "SLURM_STEP_TASKS_PER_NODE": "1,2(x3)",
        "SLURM_STEP_NUM_TASKS": "7",
        "SLURM_PROCID": str(task),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=7001, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False
    )
    # `scontrol show hostnames` expands that list to this.
    hosts = ["m5", "n08", "n09", "n10"]

    example = runpy.run_path(str(EXAMPLES / "slurm_tf_config.py"))
    made = example["tf_config"](environment, hosts, 7001)

    assert made["cluster"] == resolver.cluster_spec().as_dict()
    assert tuple(made["task"].values()) == resolver.get_task_info()


def ports_in_a_row(count):
    """The first of some free ports: the tasks of a node take the next ones."""
    for first in free_ports():
        with contextlib.suppress(OSError):
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
            return first


class Job:
    """The example's Slurm script, with stand-ins for what it calls."""

    def __init__(self, folder):
        self.folder = folder
        self.run_dir = folder / "run"
        (folder / "corpus").mkdir()
        corpus = write_digits(folder / "corpus", train=211, val=23)
        self.train = [
            # As in the recipes of `base`; the script's own folder wins.
            *("--run-dir", folder / "of-a-recipe"),
            *("--preset", "demo", "--corpus", corpus),
            *("--vocab-size", "300", "--num-layers", "1", "--d-model", "14"),
            *("--num-heads", "2", "--ffn-dim", "17", "--batch-tokens", "256"),
            # No signal comes too late.
            *("--steps", "100000", "--validation-steps", "100000"),
            *("--checkpoint-every", "7"),
        ]
        commands = folder / "bin"
        commands.mkdir()
        run = f'#!/bin/sh\nexec {sys.executable} {{}} "$@"\n'
        for name, text in {
            "python": run.format(""),
            "keras-transformer": run.format("-m keras_transformer"),
            "srun": run.format(ROOT / "tests/support/fake_srun.py"),
            "scontrol": SCONTROL,
        }.items():
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "FAKE_SLURM": str(folder),
            "PORT": str(ports_in_a_row(3)),
            "SLURM_JOB_ID": "4711",
            "SLURM_NTASKS": "3",
            "SLURM_SUBMIT_DIR": str(ROOT),
        }

    def submit(self):
        self.script = subprocess.Popen(
            ["bash", EXAMPLES / "train.sbatch", self.run_dir, *self.train],
            env=self.environment,
            start_new_session=True,
        )
        return self.script

    def log(self, index):
        path = self.folder / f"{index}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, text):
        """Wait until the chief's log holds `text`, while the script lives."""

        def is_over():
            return self.script.poll() is not None or text in self.log(0)

        until(is_over, seconds=300)
        assert text in self.log(0), self.log(0)


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    # Nothing is left behind where a test fails, whatever the script started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.script.pid, signal.SIGKILL)
    job.script.wait()


@pytest.mark.slow
def test_three_workers_that_slurm_preempts_go_on_and_say_which_is_lost(
    job, tmp_path
):
    def send(number, name):
        os.kill(int((tmp_path / f"{name}.pid").read_text()), number)

    # Slurm's SIGTERM comes to all tasks and perhaps to the script; the job asks
    # to be started again.
    script = job.submit()
    job.wait_for("Wrote")
    script.send_signal(signal.SIGTERM)
    send(signal.SIGTERM, "srun")
    assert script.wait(timeout=300) == 0, job.log(0)
    assert "Stopped; the same command goes on from here." in job.log(0)
    assert (tmp_path / "requeued").read_text() == "4711\n"
    stopped_at = int(re.findall(r"Wrote .*step-(\d+)", job.log(0))[-1])
    for path in tmp_path.glob("*.log"):
        path.unlink()

    # It resumes. One worker is killed; the others end and say why.
    script = job.submit()
    job.wait_for("First step")
    assert f"Resuming after update {stopped_at}." in job.log(0)
    send(signal.SIGKILL, 2)
    assert script.wait(timeout=300) == signal.SIGKILL
    assert (tmp_path / "requeued").read_text() == "4711\n"
    for i in (0, 1):
        (error,) = re.findall("^error: .*", job.log(i), re.M)
        assert error.startswith("error: Lost worker ")
        assert "Traceback" not in job.log(i)


@pytest.mark.parametrize("code, finished", [(0, True), (1, False)])
def test_slurm_is_not_asked_again_where_a_run_is_finished_or_failed(
    job, tmp_path, code, finished
):
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
    if finished:
        job.run_dir.mkdir()
        (job.run_dir / "final.weights.h5").touch()
    assert job.submit().wait(timeout=60) == code
    assert not (tmp_path / "requeued").exists()


# Stands for a training: ends as asked, and leaves what a finished run has.
TRAINING = """#!{python}
import os, pathlib, signal, sys, time
run_dir = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
if not run_dir.exists():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit({stopped}))
    run_dir.mkdir()
    time.sleep(60)
(run_dir / "final.weights.h5").touch()
"""


@pytest.fixture
def manifest():
    return yaml.safe_load((EXAMPLES / "tfjob.yaml").read_text())


def pod(manifest):
    return manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]


def test_the_manifest_is_as_the_schema_says(manifest):
    schema = pathlib.Path(__file__).with_name("tfjob_schema.yaml").read_text()
    jsonschema.validate(manifest, yaml.safe_load(schema))
    # Every mount has a volume.
    (container,) = pod(manifest)["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(manifest)["volumes"]}
    # Otherwise the operator sets no TF_CONFIG.
    assert container["name"] == "tensorflow"
    assert [port["name"] for port in container["ports"]] == ["tfjob-port"]


@pytest.mark.parametrize("stopped, ends", [(0, 1), (7, 7)])
def test_a_pod_that_is_preempted_has_not_succeeded_and_starts_again(
    manifest, tmp_path, stopped, ends
):
    (container,) = pod(manifest)["containers"]
    training = tmp_path / "keras-transformer"
    training.write_text(TRAINING.format(python=sys.executable, stopped=stopped))
    training.chmod(0o755)
    run_dir = tmp_path / "run"
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RUN_DIR": str(run_dir),
    }
    command = [*container["command"], *container["args"]]

    shell = subprocess.Popen(command, env=environment)
    until(run_dir.exists)
    shell.send_signal(signal.SIGTERM)
    # More than 0: the kubelet starts it again.
    assert shell.wait(timeout=60) == ends

    assert subprocess.run(command, env=environment).returncode == 0
    assert (run_dir / "final.weights.h5").exists()
