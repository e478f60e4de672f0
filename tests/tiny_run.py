"""A model too small to learn, and run directories with checkpoints of it."""

import dataclasses

import keras
import numpy as np
from run_config import make_run

from keras_transformer import config, presets
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.training.moving_average import MovingAverage

MODEL = config.ModelConfig(
    vocab_size=23,
    num_layers=1,
    d_model=6,
    num_heads=2,
    key_dim=3,
    value_dim=5,
    ffn_dim=7,
    dropout=0.2,
)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    model = Transformer(**dataclasses.asdict(MODEL))
    model.compile(
        keras.optimizers.Adam(0.01),
        SmoothedCrossEntropy(0.1),
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, steps, callbacks=()):
    random = np.random.default_rng(11)
    source, target = random.integers(4, 23, (2, 5 * steps, 7))
    target_in = np.concatenate([np.full((5 * steps, 1), 2), target[:, :-1]], 1)
    model.fit(
        (source, target_in),
        target,
        batch_size=5,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


def write_run(run_dir, ema=None):
    """Write three checkpoints of other weights each; those of their seeds.

    With `ema`, checkpoint N has the weights of seed 10 + N as its average.
    """
    preset = presets.PRESETS["tiny"]
    make_run(MODEL, dataclasses.replace(preset.training, ema=ema)).save(run_dir)
    for step in (1, 2, 3):
        average = ()
        if ema:
            average = MovingAverage(make_model(10 + step), ema).variables
        checkpoints.save_checkpoint(
            run_dir, make_model(step), Progress(step), average=average
        )
    return run_dir
