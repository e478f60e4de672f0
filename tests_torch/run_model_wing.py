"""Compute with the model wing on the Keras backend that KERAS_BACKEND names.

A program of its own, because Keras has one backend a process:
KERAS_BACKEND=torch python tests_torch/run_model_wing.py FOLDER

Writes FOLDER/results.npz and FOLDER/model.keras.
"""

import os
import pathlib
import sys

if os.environ["KERAS_BACKEND"] != "tensorflow":
    # As if TensorFlow were not installed. PyTorch looks whether it is, so a
    # finder that refuses would break it.
    sys.modules["tensorflow"] = sys.modules["tensorflow_text"] = None

import keras
import numpy as np
from keras import ops
from small_models import SOURCE, TARGET, TARGET_IN, make_model

# All of the wing, in case the model leaves a part of it out.
from keras_transformer import (  # noqa: F401
    layers,
    losses,
    masks,
    model,
)
from keras_transformer.optimizers import Adam, TransformerSchedule


def logits(changes):
    """The logits of the batch; `changes` to the model's arguments."""
    one = make_model(num_layers=1, name="transformer", **changes)
    return ops.cast(one((SOURCE, TARGET_IN), training=False), "float32")


def cached_steps(one):
    """Logits of two steps for two hypotheses of every source."""
    memory, source_mask = one.encode(SOURCE)
    cross, cache = one.cross_keys_values(memory), one.empty_cache(3)
    for t in range(2):
        ids = np.stack([TARGET_IN[:, t], TARGET_IN[:, t + 2]], axis=1)
        found, cache = one.decode_step(ids, t, cache, cross, source_mask)
        yield found


class Tied(keras.layers.Layer):
    """The loss in one with the product, of features and a table to learn."""

    def __init__(self, features, table):
        super().__init__()
        self.features = self.add_weight(shape=features.shape)
        self.table = self.add_weight(shape=table.shape)
        self.features.assign(features)
        self.table.assign(table)

    def call(self, target):
        found = losses.tied_cross_entropies(
            target, self.features + 0.0, self.table, 0.1
        )[0]
        # Each token weighs otherwise, so that no gradient is mistaken for
        # another's.
        return found * ops.reshape(
            ops.arange(1, 1 + ops.size(found), dtype="float32"), found.shape
        )


def tied_step(one):
    """The tied losses, and what one step of descent makes of their inputs."""
    tied = Tied(
        ops.convert_to_numpy(one.features((SOURCE, TARGET_IN))),
        ops.convert_to_numpy(one.embedding.table),
    )
    one_batch = keras.Sequential([tied])
    one_batch.compile(
        keras.optimizers.SGD(1.0), loss=lambda _, found: ops.sum(found)
    )
    before = tied(TARGET)
    # In order: the features are of these rows.
    one_batch.fit(TARGET, TARGET, batch_size=3, shuffle=False, verbose=0)
    return {
        "tied_losses": before,
        "tied_features": tied.features,
        "tied_table": tied.table,
    }


def training_step(one):
    """Loss and metrics of a step of descent, and the weights after it."""
    # A rate of 10 ** 6 * 10 ** -0.5 * 4000 ** -1.5 = 1.25 in the first step:
    # what differs between gradients differs between weights.
    one.compile(
        keras.optimizers.SGD(TransformerSchedule(10, scale=1e6)),
        losses.SmoothedCrossEntropy(0.1),
        metrics=[losses.TokenAccuracy(), losses.Perplexity()],
    )
    history = one.fit((SOURCE, TARGET_IN), TARGET, batch_size=3, verbose=0)
    found = {name: values[0] for name, values in history.history.items()}
    return found | {f"after/{w.path}": w for w in one.weights}


def losses_of_training():
    """The losses of 40 steps on one batch, with dropout and Adam."""
    keras.utils.set_random_seed(1)
    one = make_model(num_layers=1, dropout=0.1)
    one.compile(
        Adam(TransformerSchedule(10, 20)),
        losses.SmoothedCrossEntropy(0.1),
    )
    batch = (SOURCE, TARGET_IN), TARGET
    history = one.fit(*batch, batch_size=3, epochs=40, verbose=0)
    return history.history["loss"]


def main(folder):
    one = make_model(num_layers=1, name="transformer")
    results = {f"before/{w.path}": ops.copy(w) for w in one.weights}
    results |= {
        "logits": logits({}),
        "logits_learned": logits({"positions": "learned"}),
        "logits_bfloat16": logits({"dtype": "mixed_bfloat16"}),
        "steps": ops.stack(list(cached_steps(one))),
        **tied_step(one),
        **training_step(one),
        "training": np.array(losses_of_training()),
    }
    one.save(folder / "model.keras")
    np.savez(
        folder / "results.npz",
        **{name: ops.convert_to_numpy(x) for name, x in results.items()},
        logits_saved=ops.convert_to_numpy(one((SOURCE, TARGET_IN))),
        backend=keras.backend.backend(),
        tensorflow=sys.modules.get("tensorflow") is not None,
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
