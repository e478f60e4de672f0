"""Compute with the model wing on the Keras backend that KERAS_BACKEND names.

A program of its own, because Keras has one backend a process:
KERAS_BACKEND=jax python tests/support/run_model_wing.py FOLDER [MODEL.keras]

Writes FOLDER/results.npz and FOLDER/model.keras; computes with another
backend's MODEL.keras too.
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
from small_models import SIZES, SOURCE, TARGET, TARGET_IN, make_model

# All of the wing, in case the model leaves a part of it out.
from keras_transformer import (  # noqa: F401
    config,
    keras_internals,
    layers,
    losses,
    masks,
    model,
    replicas,
)
from keras_transformer.optimizers import Adam, TransformerSchedule

INPUTS = (SOURCE, TARGET_IN)


def logits(**changes):
    """The logits of the batch; `changes` to the model's arguments."""
    # One layer, since JAX compiles every operation before it runs.
    one = make_model(num_layers=1, name="transformer", **changes)
    return ops.cast(one(INPUTS, training=False), "float32")


def cached_steps(one):
    """Logits of two steps for two hypotheses of every source."""
    memory, source_mask = one.encode(SOURCE)
    cross, cache = one.cross_keys_values(memory), one.empty_cache(3)
    for t in range(2):
        ids = np.stack([TARGET_IN[:, t], TARGET_IN[:, t + 2]], axis=1)
        found, cache = one.decode_step(ids, t, cache, cross, source_mask)
        yield found


def masked(one):
    """By the mask that Keras attaches to the output of an embedding."""
    embedding = layers.TiedEmbedding(
        SIZES["vocab_size"], SIZES["d_model"], True
    )
    embedding.build()
    embedding.table.assign(one.embedding.table)
    return ops.convert_to_numpy(one.encoder(embedding(SOURCE)))[SOURCE != 0]


def training_step(one):
    """Loss and metrics of a step of descent, and the weights after it."""
    # A rate of 10 ** 6 * 10 ** -0.5 * 4000 ** -1.5 = 1.25 in the first step:
    # what differs between gradients differs between weights.
    one.compile(
        keras.optimizers.SGD(TransformerSchedule(10, scale=1e6)),
        losses.SmoothedCrossEntropy(0.1),
        metrics=[losses.TokenAccuracy(), losses.Perplexity()],
    )
    history = one.fit(INPUTS, TARGET, batch_size=3, verbose=0)
    found = {name: values[0] for name, values in history.history.items()}
    return found | {f"after/{w.path}": w for w in one.weights}


def losses_of_training():
    """The losses of 40 steps on one batch, with dropout and Adam."""
    keras.utils.set_random_seed(1)
    one = make_model(num_layers=1, dropout=0.1)
    one.compile(
        Adam(TransformerSchedule(10, 20)), losses.SmoothedCrossEntropy(0.1)
    )
    history = one.fit(INPUTS, TARGET, batch_size=3, epochs=40, verbose=0)
    return history.history["loss"]


def main(folder, other=None):
    one = make_model(num_layers=1, name="transformer")
    results = {f"before/{w.path}": ops.copy(w) for w in one.weights}
    results |= {
        "logits": logits(),
        "logits_learned": logits(positions="learned"),
        "logits_restricted": logits(restriction=2),
        "logits_bfloat16": logits(dtype="mixed_bfloat16"),
        "masked": masked(one),
        "steps": ops.stack(list(cached_steps(one))),
        **training_step(one),
        "training": np.array(losses_of_training()),
    }
    one.save(folder / "model.keras")
    loaded = keras.saving.load_model(other or folder / "model.keras")
    np.savez(
        folder / "results.npz",
        **{name: ops.convert_to_numpy(x) for name, x in results.items()},
        logits_loaded=ops.convert_to_numpy(loaded(INPUTS)),
        backend=keras.backend.backend(),
        tensorflow=sys.modules.get("tensorflow") is not None,
    )


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
