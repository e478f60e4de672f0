"""A stand-in for TensorFlow Serving's gRPC predict interface.

It loads a SavedModel in the session loader and takes what TensorFlow Serving
documents, no more: an unknown model, signature or input is an error. For its
REST interface the embedded server stands in.

    python prediction_server.py SAVED_MODEL NAME    prints its port
"""

import os
import sys
from concurrent import futures

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from session_loader import Served
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


def main(path, name):
    model = Model(path, name)
    grpc_server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(model), grpc_server
    )
    grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    print(grpc_port, flush=True)
    # Wait until whoever started us closes our standard input.
    sys.stdin.read()
    grpc_server.stop(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
