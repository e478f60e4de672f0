"""Models saved by Keras, loaded where nothing but the package was imported."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SAVE = """
import keras, numpy as np
import keras_transformer as kt

model = kt.Transformer(29, num_layers=1, d_model=14, num_heads=2, ffn_dim=11)
model.compile(kt.Adam(kt.TransformerSchedule(14)),
    loss=kt.SmoothedCrossEntropy(0.1),
    metrics=[kt.TokenAccuracy(), kt.Perplexity()])
x = np.array([[5, 6, 3]], "int32"), np.array([[2, 7]], "int32")
model.train_on_batch(x, np.array([[7, 3]], "int32"))
np.save("logits.npy", np.asarray(model(x)))
model.save("model.keras")
"""
LOAD = """
import sys
import numpy as np
{imports}
assert "tensorflow" not in sys.modules or (
    keras.backend.backend() == "tensorflow")
model = keras.models.load_model("model.keras")
x = np.array([[5, 6, 3]], "int32"), np.array([[2, 7]], "int32")
np.testing.assert_allclose(np.asarray(model(x)), np.load("logits.npy"), 1e-5)
assert type(model.loss).__name__ == "SmoothedCrossEntropy"
assert type(model.optimizer).__module__.startswith("keras_transformer")
assert (model.optimizer.beta_2, model.optimizer.epsilon) == (0.98, 1e-9)
"""
WAYS = (
    "import keras_transformer; import keras",
    "import keras; import keras_transformer",
    # As `import tensorflow` does, which imports Keras later.
    "import keras_transformer, importlib.util; "
    "importlib.util.find_spec('keras'); import keras",
    "from keras_transformer.layers import attention; import keras",
    "from keras_transformer.model import Transformer; import keras",
)


def run(program, folder, backend):
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        cwd=folder,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    # Who imports what first is the same for every backend.
    "backend, ways",
    [("tensorflow", WAYS[1:]), ("jax", WAYS[:1])],
)
def test_a_new_process_loads_what_keras_saved(tmp_path, backend, ways):
    run(SAVE, tmp_path, backend)
    for imports in ways:
        run(LOAD.format(imports=imports), tmp_path, backend)
