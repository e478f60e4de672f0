"""Run the model wing on Keras's JAX backend, where TensorFlow is forbidden.

A program of its own, because Keras has one backend a process:
KERAS_BACKEND=jax python tests/support/run_on_jax.py WEIGHTS.npz OUTPUT.npz
"""

import sys


class NoTensorFlow:
    """Finds no module of TensorFlow's, and says so."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ImportError(f"The model wing may not import {name}.")


def main(weights, output):
    sys.meta_path.insert(0, NoTensorFlow())

    import keras
    import numpy as np
    from small_models import model_wing_results

    # All of the wing, in case the model leaves a part of it out.
    from keras_transformer import (  # noqa: F401
        config,
        keras_internals,
        layers,
        losses,
        masks,
        model,
        optimizers,
        replicas,
    )

    results = model_wing_results(np.load(weights))
    np.savez(
        output,
        **results,
        backend=keras.backend.backend(),
        tensorflow="tensorflow" in sys.modules,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
