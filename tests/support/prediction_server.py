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
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """A SavedModel under a name."""

    def __init__(self, path, name):
        self.served, self.name = Served(path), name

    def Predict(self, request, context):
        spec = request.model_spec
        if spec.name != self.name:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: Latest({spec.name})",
            )
        inputs = {
            name: tf.make_ndarray(tensor)
            for name, tensor in request.inputs.items()
        }
        signature = spec.signature_name or "serving_default"
        response = predict_pb2.PredictResponse(model_spec=spec)
        for name, values in self.served(signature, **inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response


def main(path, name):
    grpc_server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(path, name), grpc_server
    )
    grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    print(grpc_port, flush=True)
    # Wait until whoever started us closes our standard input.
    sys.stdin.read()
    grpc_server.stop(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
