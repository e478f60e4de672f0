"""A SavedModel in the session loader, as TensorFlow Serving loads it."""

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  Its operators, which the graph needs.


class Served:
    """No Python of ours takes part; may be called from many threads.

    Attributes:
        signatures: SignatureDef by name, without SavedModel's initialiser.
    """

    def __init__(self, path):
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(
                self.session, [tf.saved_model.SERVING], str(path)
            )
        self.signatures = {
            name: signature
            for name, signature in loaded.signature_def.items()
            if not name.startswith("__")
        }

    def __call__(self, signature, **inputs):
        signature = self.signatures[signature]
        return self.session.run(
            {name: info.name for name, info in signature.outputs.items()},
            {
                signature.inputs[name].name: np.asarray(value, object)
                for name, value in inputs.items()
            },
        )

    def everywhere(self, signature, texts):
        """Call with `texts` as each of the inputs, all of them strings."""
        inputs = self.signatures[signature].inputs
        assert {info.dtype for info in inputs.values()} == {
            tf.string.as_datatype_enum
        }
        return self(signature, **dict.fromkeys(inputs, texts))
