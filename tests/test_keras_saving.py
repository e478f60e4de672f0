"""A model saved by Keras, loaded where the model wing was imported."""

import h5py
import numpy as np
import pytest
from programs import python
from small_models import make_model

import keras_transformer as kt

LOAD = """
import sys
import numpy as np
{imports}
assert "tensorflow" not in sys.modules or (
    keras.backend.backend() == "tensorflow")
model = keras.models.load_model("model.keras")
x = np.array([[5, 6, 3]], "int32"), np.array([[2, 7]], "int32")
model.save("again.keras")
for model in model, keras.models.load_model("again.keras"):
    logits = np.asarray(model(x))
    np.testing.assert_allclose(logits, np.load("logits.npy"), 1e-5, 1e-5)
assert type(model.loss).__name__ == "SmoothedCrossEntropy"
assert type(model.optimizer).__module__.startswith("keras_transformer")
assert (model.optimizer.beta_2, model.optimizer.epsilon) == (0.98, 1e-9)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a model that TensorFlow has trained, and its logits."""
    folder = tmp_path_factory.mktemp("saved")
    model = kt.Transformer(29, num_layers=1, d_model=14, num_heads=2)
    adam, loss = kt.Adam(kt.TransformerSchedule(14)), kt.SmoothedCrossEntropy()
    metrics = [kt.TokenAccuracy(), kt.Perplexity()]
    model.compile(adam, loss=loss, metrics=metrics)
    x = np.array([[5, 6, 3]], "int32"), np.array([[2, 7]], "int32")
    model.train_on_batch(x, np.array([[7, 3]], "int32"))
    np.save(folder / "logits.npy", np.asarray(model(x)))
    model.save(folder / "model.keras")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    # Who imports what first is the same for every backend.
    "backend, imports",
    [
        ("tensorflow", "import keras, keras_transformer as kt; kt.Transformer"),
        ("jax", "import keras_transformer.model; import keras"),
    ],
)
def test_a_new_process_loads_what_keras_saved(saved, backend, imports):
    program = LOAD.format(imports=imports)
    python("-c", program, cwd=saved, KERAS_BACKEND=backend)


ENCODER, DECODER = (
    f"{side}r/layers/{side}r_layer" for side in ("encode", "decode")
)
# Places in files that runs have written since the first, and how many weights
# are at each, in the order in which optimizers keep what belongs to them.
PLACES = {
    "embedding": 1,
    f"{ENCODER}/attention": 4,
    f"{ENCODER}/feed_forward/widen": 2,
    f"{ENCODER}/feed_forward/narrow": 2,
    f"{ENCODER}/attention_norm": 2,
    f"{ENCODER}/feed_forward_norm": 2,
    "encoder/norm": 2,
    f"{DECODER}/self_attention": 4,
    f"{DECODER}/cross_attention": 4,
    f"{DECODER}/feed_forward/widen": 2,
    f"{DECODER}/feed_forward/narrow": 2,
    f"{DECODER}/norms/layer_normalization": 2,
    f"{DECODER}/norms/layer_normalization_1": 2,
    f"{DECODER}/norms/layer_normalization_2": 2,
    "decoder/norm": 2,
}


def test_files_of_earlier_versions_find_every_weight(tmp_path):
    model = make_model(num_layers=1, norm_first=True)
    model.save_weights(tmp_path / "model.weights.h5")
    places = [f"{x}/vars/{i}" for x, n in PLACES.items() for i in range(n)]
    weights = model.trainable_variables
    with h5py.File(tmp_path / "model.weights.h5") as file:
        for place, weight in zip(places, weights, strict=True):
            np.testing.assert_array_equal(file[place], weight, err_msg=place)
