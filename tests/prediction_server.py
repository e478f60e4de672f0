"""A stand-in for TensorFlow Serving: its gRPC and REST predict interfaces.

It loads a SavedModel in the session loader and takes what TensorFlow Serving
documents, no more: an unknown model, signature or input and a body of another
form are errors.

    python prediction_server.py SAVED_MODEL NAME    prints its two ports
"""

import base64
import json
import os
import re
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np
import tensorflow as tf
from served import Served
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_service_pb2_grpc,
)


class WrongRequestError(ValueError):
    """What the client did wrong."""


class Model:
    """A SavedModel under a name."""

    def __init__(self, path, name):
        self.served, self.name = Served(path), name

    def predict(self, name, signature, inputs):
        if name != self.name:
            raise WrongRequestError(
                f"Servable not found for request: Latest({name})"
            )
        if signature not in self.served.signatures:
            raise WrongRequestError(f'Serving signature "{signature}" missing')
        wanted = set(self.served.signatures[signature].inputs)
        if set(inputs) != wanted:
            raise WrongRequestError(
                f"inputs are {set(inputs)}, should be {wanted}"
            )
        return self.served(signature, **inputs)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, model):
        self.model = model

    def Predict(self, request, context):
        spec = request.model_spec
        try:
            outputs = self.model.predict(
                spec.name,
                spec.signature_name or "serving_default",
                {
                    name: tf.make_ndarray(tensor)
                    for name, tensor in request.inputs.items()
                },
            )
        except WrongRequestError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        response = predict_pb2.PredictResponse(model_spec=spec)
        for name, values in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response


def from_json(value):
    """A string, or {"b64": …} for bytes that are none."""
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    if not isinstance(value, str):
        raise WrongRequestError(f"JSON Value: {value!r} Type: is not string")
    return value.encode()


def to_json(values):
    if values.dtype == object:
        values = np.vectorize(bytes.decode, otypes=[object])(values)
    return values.tolist()


def answer(model, path, body):
    """The documented answer to a predict request in either format."""
    route = re.fullmatch("/v1/models/([^/:]+)(/versions/[0-9]+)?:predict", path)
    if route is None:
        raise WrongRequestError(f"Malformed request: POST {path}")
    request = json.loads(body)
    signature = request.pop("signature_name", "serving_default")
    if set(request) not in ({"instances"}, {"inputs"}):
        raise WrongRequestError("Missing 'inputs' or 'instances' key")
    ((form, rows),) = request.items()
    names = list(model.served.signatures[signature].inputs)
    if form == "instances":
        if len(names) == 1 and not isinstance(rows[0], dict):
            rows = [{names[0]: row} for row in rows]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    else:
        columns = rows if isinstance(rows, dict) else {names[0]: rows}
    outputs = model.predict(
        route[1],
        signature,
        {
            name: [from_json(value) for value in column]
            for name, column in columns.items()
        },
    )
    outputs = {name: to_json(values) for name, values in outputs.items()}
    if form == "inputs":
        return {"outputs": outputs}
    return {
        "predictions": [
            dict(zip(outputs, row, strict=True))
            for row in zip(*outputs.values(), strict=True)
        ]
    }


def rest_handler(model):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, found = 200, answer(model, self.path, body)
            except (ValueError, KeyError) as error:
                status, found = 400, {"error": str(error)}
            found = json.dumps(found, ensure_ascii=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_):
            pass

    return Handler


def main(path, name):
    model = Model(path, name)
    grpc_server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(model), grpc_server
    )
    grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    rest_server = ThreadingHTTPServer(("127.0.0.1", 0), rest_handler(model))
    threading.Thread(target=rest_server.serve_forever, daemon=True).start()
    print(grpc_port, rest_server.server_port, flush=True)
    # Until whoever started us lets go of our standard input.
    sys.stdin.read()
    rest_server.shutdown()
    grpc_server.stop(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
