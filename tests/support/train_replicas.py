"""Train a toy model in several ways on some replicas; save each one's weights.

A program of its own, because logical devices and workers must be set before
TensorFlow starts: python tests/support/train_replicas.py STRATEGY OUTPUT WAY...
STRATEGY is none, mirrored (two logical devices) or multiworker, with TF_CONFIG
set; OUTPUT is a folder that gets WAY.npz for each way.
"""

import pathlib
import sys
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from local_workers import split_processor

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam
from keras_transformer.training import workers

VOCAB = 29
FEW_ROWS = (8, 5, 1, 3, 7)


class Way(NamedTuple):
    accumulate: int = 1
    dropout: float = 0.0
    few_rows: bool = False
    validate: bool = False
    xla: bool = False


WAYS = {
    "plainly": Way(validate=True),
    "accumulated": Way(accumulate=2),
    "with dropout": Way(dropout=0.1),
    "with few rows": Way(few_rows=True),
    "by XLA": Way(xla=True),
    "accumulated by XLA": Way(accumulate=2, xla=True),
}
# Two processes take time, so only ways whose step differs between processes.
BY_WORKERS = [way for way in WAYS if way != "accumulated by XLA"]


def batches(few_rows):
    """20 batches of rows whose halves hold very different token counts."""
    random = np.random.default_rng(3)
    for i in range(20):
        ids = random.integers(4, VOCAB, (8, 13))
        lengths = np.tile([random.integers(9, 14), random.integers(1, 4)], 4)
        target = np.where(np.arange(13) < lengths[:, None], ids, 0)
        target_in = np.concatenate([np.full((8, 1), 2), target[:, :-1]], 1)
        source = np.roll(target, 1, axis=0)
        rows = FEW_ROWS[i % len(FEW_ROWS)] if few_rows else 8
        source, target_in, target = (
            x[:rows].astype("int32") for x in (source, target_in, target)
        )
        yield (source, target_in), target


def make_model(way):
    keras.utils.set_random_seed(5)
    model = Transformer(
        vocab_size=VOCAB,
        num_layers=1,
        d_model=14,
        num_heads=2,
        ffn_dim=17,
        dropout=way.dropout,
    )
    model.compile(
        Adam(0.01, beta_2=0.98, epsilon=1e-9),
        SmoothedCrossEntropy(0.1),
        jit_compile=way.xla,
        accumulate=way.accumulate,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def train(strategy, way):
    with strategy.scope():
        model = make_model(way)
    ids = tf.TensorSpec((None, None), tf.int32)
    data = tf.data.Dataset.from_generator(
        lambda: batches(way.few_rows), output_signature=((ids, ids), ids)
    )
    data = workers.share_rows(strategy, data)
    losses = []
    history = model.fit(
        data,
        verbose=0,
        validation_data=data if way.validate else None,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda _, logs: losses.append(
                    float(logs["batch_loss"])
                )
            )
        ],
    ).history
    weights = {str(i): w for i, w in enumerate(model.get_weights())}
    logs = {name: values[-1] for name, values in history.items()}
    return model, {"losses": losses, **logs, **weights}


def dropped(strategy, model):
    """Ones after each local replica's dropout: `(replicas, 5, 7, 11)`."""

    @tf.function(autograph=False)
    def drop():
        ones = tf.ones((5, 7, 11))
        return strategy.run(lambda: model.source_dropout(ones, training=True))

    return np.stack(strategy.experimental_local_results(drop()))


def main(name, output, *asked):
    if name == "mirrored":
        split_processor()
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    else:
        strategy = workers.make_strategy(name)
    for way in asked:
        model, results = train(strategy, WAYS[way])
        if WAYS[way].dropout:
            results["dropped"] = dropped(strategy, model)
        np.savez(pathlib.Path(output, f"{way}.npz"), **results)
    workers.end_together(strategy)


if __name__ == "__main__":
    main(*sys.argv[1:])
