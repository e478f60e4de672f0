"""Train a toy model for 20 steps on N replicas and save its weights.

A program of its own, because logical devices must be set before TensorFlow
starts: python tests/train_replicas.py REPLICAS ACCUMULATE DROPOUT OUTPUT.npz
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.distribution import ExactTransformer
from keras_transformer.losses import SmoothedCrossEntropy

VOCAB = 29


def batches():
    """20 batches of 8 rows whose halves hold very different token counts."""
    random = np.random.default_rng(3)
    for _ in range(20):
        ids = random.integers(4, VOCAB, (8, 13))
        lengths = np.concatenate(
            [random.integers(9, 14, 4), random.integers(1, 4, 4)]
        )
        target = np.where(np.arange(13) < lengths[:, None], ids, 0)
        target_in = np.concatenate([np.full((8, 1), 2), target[:, :-1]], 1)
        source = np.roll(target, 1, axis=0)
        yield tuple(x.astype("int32") for x in (source, target_in, target))


def main(replicas, accumulate, dropout, output):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        devices = [f"CPU:{i}" for i in range(replicas)]
        strategy = tf.distribute.MirroredStrategy(devices)
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = ExactTransformer(
            vocab_size=VOCAB,
            num_layers=1,
            d_model=14,
            num_heads=2,
            ffn_dim=17,
            dropout=dropout,
            accumulate=accumulate,
        )
        model.compile(
            keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9),
            SmoothedCrossEntropy(0.1),
            jit_compile=False,
        )
        model.optimizer.build(model.trainable_variables)
    source, target_in, target = (
        np.stack(x) for x in zip(*batches(), strict=True)
    )
    data = tf.data.Dataset.from_tensor_slices(((source, target_in), target))
    losses = []
    model.fit(
        data,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda _, logs: losses.append(
                    float(logs["batch_loss"])
                )
            )
        ],
    )
    weights = {str(i): w for i, w in enumerate(model.get_weights())}
    np.savez(output, losses=losses, **weights)


if __name__ == "__main__":
    replicas, accumulate, dropout, output = sys.argv[1:]
    main(int(replicas), int(accumulate), float(dropout), output)
