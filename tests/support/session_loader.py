"""A SavedModel in the session loader, called by the names of its inputs."""

import pathlib

import numpy as np
from tensorflow.core.protobuf import saved_model_pb2

from keras_transformer.serving.versions import ServedModel


class Served(ServedModel):
    """Answers as TensorFlow Serving does; no Python of ours takes part."""

    def __init__(self, path):
        super().__init__(pathlib.Path(path))

    def __call__(self, signature, **inputs):
        """Call with texts `(B,)` by input; B may be 0."""
        assert inputs.keys() == set(self.inputs(signature))
        columns = [inputs[name] for name in self.inputs(signature)]
        return self._calls[signature](*(np.asarray(x, object) for x in columns))

    def everywhere(self, signature, texts):
        """Call with `texts` as each of the inputs."""
        return self(signature, **dict.fromkeys(self.inputs(signature), texts))


def operators(path):
    """Names of all operators in the file, those of its functions included."""
    saved = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    )
    (meta,) = saved.meta_graphs
    return operators_of(meta.graph_def)


def operators_of(graph_def):
    nodes = [*graph_def.node]
    for function in graph_def.library.function:
        nodes += function.node_def
    return {node.op for node in nodes}
