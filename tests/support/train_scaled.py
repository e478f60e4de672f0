"""Train a toy model in float16 from a loss scale that must overflow.

A program of its own for two replicas, because logical devices must be set
before TensorFlow starts: python tests/support/train_scaled.py OUTPUT.npz
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from local_workers import split_processor

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import TransformerSchedule

VOCAB = 29
STEPS = 59
START = 2.0**40


def data(seed=3, rows=8):
    """Batches of copies; only the second half of the rows holds tokens."""
    ids = np.random.default_rng(seed).integers(4, VOCAB, (STEPS, rows, 5))
    ids[:, : rows // 2] = 0
    starts = np.where(ids[:, :, :1] > 0, 2, 0)
    inputs = np.concatenate([starts, ids[:, :, :-1]], 2)
    source, target_in, target = (x.astype("int32") for x in (ids, inputs, ids))
    return tf.data.Dataset.from_tensor_slices(((source, target_in), target))


def make_model(accumulate, start=START, growth=2_000):
    keras.utils.set_random_seed(5)
    model = Transformer(
        vocab_size=VOCAB,
        num_layers=1,
        d_model=14,
        num_heads=2,
        ffn_dim=17,
        dropout=0.1,
        dtype="mixed_float16",
    )
    model.compile(
        keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(
                TransformerSchedule(14, 11), beta_2=0.98, epsilon=1e-9
            ),
            initial_scale=start,
            dynamic_growth_steps=growth,
        ),
        SmoothedCrossEntropy(0.1),
        jit_compile=False,
        accumulate=accumulate,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def flat(variables):
    return np.concatenate([np.ravel(v.numpy()) for v in variables])


def record(strategy, accumulate):
    """The state before and after each step, as arrays by name."""
    with strategy.scope():
        model = make_model(accumulate)
    optimizer, steps = model.optimizer, []

    def note(batch, logs):
        steps.append(
            {
                "loss": float(logs["batch_loss"]),
                "norm": float(logs["gradient_norm"]),
                "scale": float(optimizer.dynamic_scale.numpy()),
                "updates": int(optimizer.iterations.numpy()),
                "rate": float(tf.convert_to_tensor(optimizer.learning_rate)),
                "weights": flat(model.trainable_variables),
                "moments": flat(optimizer.inner_optimizer.variables),
            }
        )

    note(None, {"batch_loss": 0.0, "gradient_norm": 0.0})
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(data(), verbose=0, shuffle=False, callbacks=[keep])
    return {name: np.stack([x[name] for x in steps]) for name in steps[0]}


if __name__ == "__main__":
    split_processor()
    np.savez(sys.argv[1], **record(tf.distribute.MirroredStrategy(), 1))
