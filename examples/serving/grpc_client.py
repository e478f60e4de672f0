"""Ask TensorFlow Serving for translations over gRPC.

Needs `pip install tensorflow-serving-api`.

Example:
    python grpc_client.py --model demo "three hundred and two"
"""

import argparse
import os
import sys

# The messages bring TensorFlow with them, whose first notices come from C++.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

import grpc  # noqa: E402
from tensorflow.core.framework import tensor_pb2, types_pb2  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    predict_pb2,
    prediction_service_pb2_grpc,
)

os.dup2(standard_error, 2)


def translate(server, model, texts, timeout):
    """Return one translation for each text."""
    text = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        string_val=[text.encode("utf-8", "replace") for text in texts],
    )
    text.tensor_shape.dim.add(size=len(texts))
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = "serving_default"
    request.inputs["text"].CopyFrom(text)
    try:
        with grpc.insecure_channel(server) as channel:
            service = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            response = service.Predict(request, timeout=timeout)
    except grpc.RpcError as error:
        sys.exit(
            f"error: no translation from {server} ({error.code().name}: "
            f"{' '.join(error.details().split())}); is TensorFlow Serving "
            f"running there with a model named {model}?"
        )
    return [
        translation.decode()
        for translation in response.outputs["translation"].string_val
    ]


def main():
    """Print a translation a line, or one sentence of what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="localhost:8500")
    parser.add_argument("--model", required=True, help="its name on the server")
    parser.add_argument("--timeout", type=float, default=30, help="seconds")
    parser.add_argument("text", nargs="+")
    args = parser.parse_args()
    found = translate(args.server, args.model, args.text, args.timeout)
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
