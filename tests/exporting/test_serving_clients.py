"""The clients and the compose file of examples/serving.

The clients run as processes against what stands in for TensorFlow Serving: the
embedded server for its REST interface, and for gRPC the service below.
"""

import pathlib
import re
import shutil
import subprocess
import sys
from concurrent import futures

import grpc
import pytest
import tensorflow as tf
import yaml
from project_table import ROOT
from sample_runs import quantized_export
from session_loader import Served
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

EXAMPLES = ROOT / "examples" / "serving"
TEXTS = ["ein kleiner Hund bellt", "", "über die Wiese 😀"]


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Takes what TensorFlow Serving documents, no more, for a model `small`."""

    def __init__(self, served):
        self.served = served

    def Predict(self, request, context):
        spec = request.model_spec
        if spec.name != "small":
            context.abort(grpc.StatusCode.NOT_FOUND, spec.name)
        inputs = {x: tf.make_ndarray(y) for x, y in request.inputs.items()}
        signature = spec.signature_name or "serving_default"
        response = predict_pb2.PredictResponse(model_spec=spec)
        for name, values in self.served(signature, **inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response


@pytest.fixture(scope="module")
def ports(served, server):
    """The port that each client asks."""
    service = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(served), service
    )
    port = service.add_insecure_port("127.0.0.1:0")
    service.start()
    yield {"grpc_client.py": port, "rest_client.py": server.port}
    service.stop(None)


@pytest.mark.example
@pytest.mark.parametrize("client", ["grpc_client.py", "rest_client.py"])
def test_a_client_prints_a_translation_a_line(ports, served, client):
    address = f"--server=localhost:{ports[client]}"
    found = subprocess.run(
        [sys.executable, EXAMPLES / client, "--model=small", address, *TEXTS],
        capture_output=True,
        text=True,
        # Without this package.
        cwd="/",
        env={"PATH": "", "PYTHONIOENCODING": "utf-8"},
    )
    assert (found.returncode, found.stderr) == (0, "")
    expected = served("serving_default", text=TEXTS)["translation"]
    assert found.stdout == "".join(f"{text.decode()}\n" for text in expected)


@pytest.fixture(scope="module")
def c_program(tmp_path_factory):
    """The compiled translate.c."""
    program = tmp_path_factory.mktemp("c") / "translate"
    library = pathlib.Path(tf.sysconfig.get_lib())
    # As README.md says.
    command = [
        *("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror"),
        *("-o", program, EXAMPLES / "translate.c"),
        *(f"-I{library}/include", f"-L{library}"),
        *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        f"-Wl,-rpath,{library}",
    ]
    subprocess.run(command, check=True)
    return program


@pytest.mark.example
# Python and make are all that the tests may ask for.
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_c_program_translates(c_program, exported, precision):
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
