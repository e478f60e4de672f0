"""The clients and the compose file of examples/serving.

The clients run as processes against what stands in for TensorFlow Serving: the
embedded server for its REST interface, `prediction_server.py` for gRPC.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf
import yaml
from project_table import ROOT
from sample_runs import quantized_export
from session_loader import Served

EXAMPLES = ROOT / "examples" / "serving"
TEXTS = ["ein kleiner Hund bellt", "", "über die Wiese 😀"]


@pytest.fixture(scope="module")
def ports(exported, server):
    """The port that each client asks."""
    process = subprocess.Popen(
        [
            sys.executable,
            ROOT / "tests" / "support" / "prediction_server.py",
            exported,
            "small",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        grpc_port = process.stdout.readline().strip()
        assert grpc_port, "the stand-in has not started"
        yield {"grpc_client.py": grpc_port, "rest_client.py": server.port}
        process.stdin.close()


@pytest.fixture(scope="module")
def expected(served):
    found = served("serving_default", text=TEXTS)
    return [text.decode() for text in found["translation"]]


def ask(client, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / client, *arguments],
        capture_output=True,
        text=True,
        # Without this package.
        cwd="/",
        env={"PATH": "", "PYTHONIOENCODING": "utf-8"},
    )


@pytest.mark.example
@pytest.mark.parametrize("client", ["grpc_client.py", "rest_client.py"])
def test_a_client_prints_a_translation_a_line(ports, expected, client):
    found = ask(
        client, "--model=small", f"--server=localhost:{ports[client]}", *TEXTS
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "".join(f"{text}\n" for text in expected)


@pytest.fixture(scope="module")
def c_program(tmp_path_factory):
    """The compiled translate.c; None without a compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        # Python and make are all that the tests may ask for.
        return None
    program = tmp_path_factory.mktemp("c") / "translate"
    library = pathlib.Path(tf.sysconfig.get_lib())
    # As README.md says.
    command = [
        *(compiler, "-std=c11", "-Wall", "-Wextra", "-Werror"),
        *("-o", program, EXAMPLES / "translate.c"),
        *(f"-I{library}/include", f"-L{library}"),
        *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        f"-Wl,-rpath,{library}",
    ]
    subprocess.run(command, check=True)
    return program


@pytest.mark.example
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_c_program_translates(c_program, exported, precision):
    if c_program is None:
        return
    export = exported
    if precision != "float32":
        export = quantized_export(precision) / "17"
    served = Served(export)
    signature = served.signatures["serving_default"]
    operators = "tensorflow_text/python/ops/_sentencepiece_tokenizer.so"

    found = subprocess.run(
        [
            c_program,
            export,
            pathlib.Path(tf.sysconfig.get_lib()).parent / operators,
            signature.inputs["text"].name,
            signature.outputs["translation"].name,
            *TEXTS,
        ],
        check=True,
        capture_output=True,
        text=True,
        # No Python to be found.
        env={"PATH": ""},
    )

    expected = served("serving_default", text=TEXTS)["translation"]
    assert found.stdout.splitlines() == [text.decode() for text in expected]


def test_the_compose_file_names_what_export_writes(exported):
    # The variables' defaults, as Docker Compose takes them.
    text = re.sub(
        r"\$\{\w+:-([^}]*)\}", r"\1", (EXAMPLES / "compose.yaml").read_text()
    )
    assert "$" not in text
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["image"].startswith("tensorflow/serving:")
    # TensorFlow Serving listens, and the clients ask, at these ports.
    assert service["ports"] == [
        f"127.0.0.1:{port}:{port}" for port in (8500, 8501)
    ]
    for client, port in ("grpc_client.py", 8500), ("rest_client.py", 8501):
        assert f'"localhost:{port}"' in (EXAMPLES / client).read_text()
    (volume,) = service["volumes"]
    folder, inside, mode = volume.split(":")
    assert mode == "ro"
    # As make demo exports, seen from the compose file.
    assert (EXAMPLES / folder).resolve() == ROOT / "exported" / "demo"
    flags = dict(flag.split("=") for flag in service["command"])
    assert flags.pop("--enable_batching") == "true"
    assert int(flags.pop("--rest_api_timeout_in_ms")) >= 30_000
    (file,) = (path for path in exported.parent.iterdir() if path.is_file())
    assert flags == {
        "--model_name": pathlib.Path(folder).name,
        "--model_base_path": inside,
        "--batching_parameters_file": f"{inside}/{file.name}",
    }
