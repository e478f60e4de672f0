"""The model wing on another backend of Keras, compared with TensorFlow."""

import numpy as np
from programs import SUPPORT, python


def run(backend, folder, *model):
    folder.mkdir()
    program = SUPPORT / "run_model_wing.py"
    python(program, folder, *model, KERAS_BACKEND=backend)
    return dict(np.load(folder / "results.npz"))


def assert_computes_alike(backend, folder):
    """Compare numbers and gradients; each saved model loads on TensorFlow."""
    found = run(backend, folder / backend)
    # There it could not have been imported.
    assert found["backend"] == backend and not found["tensorflow"]
    expected = run(
        "tensorflow", folder / "tensorflow", folder / backend / "model.keras"
    )
    names = expected.keys() - {"backend", "tensorflow"}
    names -= {"logits_bfloat16", "training"}
    assert sum(name.startswith("before/") for name in names) > 20
    for name in names:
        rtol = 1e-4 if name.startswith("after/") else 1e-5
        np.testing.assert_allclose(
            found[name], expected[name], rtol, 1e-5, err_msg=name
        )
        if name.startswith("after/"):
            before = found[name.replace("after/", "before/")]
            assert np.any(np.abs(found[name] - before) > 1e-3), name
    off = np.abs(found["logits_bfloat16"] - found["logits"]).max()
    assert 0 < off < 0.05 * np.abs(found["logits"]).max()
    # It learns with dropout.
    assert found["training"][-5:].mean() < found["training"][:5].mean() - 0.5
