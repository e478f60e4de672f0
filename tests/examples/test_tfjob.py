"""The manifest for Kubeflow, as far as it can be checked without Kubernetes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
import yaml

from keras_transformer.training.workers import Cluster

HERE = pathlib.Path(__file__).parent
MANIFEST = HERE.parents[1] / "examples" / "cluster" / "tfjob.yaml"
SCHEMA = yaml.safe_load((HERE / "tfjob_schema.yaml").read_text())
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
    return yaml.safe_load(MANIFEST.read_text())


def worker(manifest):
    return manifest["spec"]["tfReplicaSpecs"]["Worker"]


def pod(manifest):
    return worker(manifest)["template"]["spec"]


def test_the_manifest_is_as_the_schema_says(manifest):
    jsonschema.validate(manifest, SCHEMA)
    # Every mount has a volume.
    (container,) = pod(manifest)["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(manifest)["volumes"]}


def test_the_tf_config_that_the_operator_sets_is_understood(manifest):
    # As its documentation shows it for the job's name and port.
    (container,) = pod(manifest)["containers"]
    assert container["name"] == "tensorflow"  # Otherwise it sets none.
    (port,) = container["ports"]
    assert port["name"] == "tfjob-port"
    name = manifest["metadata"]["name"]
    hosts = [
        f"{name}-worker-{i}.default.svc:{port['containerPort']}"
        for i in range(worker(manifest)["replicas"])
    ]
    task = {"type": "worker", "index": 2}
    told = dict(cluster={"worker": hosts}, task=task, environment="cloud")
    cluster = Cluster.from_tf_config(json.dumps(told))
    assert cluster.addresses == tuple(hosts)
    assert cluster.index == 2


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
    while not run_dir.exists():
        time.sleep(0.01)
    shell.send_signal(signal.SIGTERM)
    # More than 0: the kubelet starts it again.
    assert shell.wait(timeout=60) == ends

    assert subprocess.run(command, env=environment).returncode == 0
    assert (run_dir / "final.weights.h5").exists()
