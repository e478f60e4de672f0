"""Train two epochs of a toy corpus by XLA, which writes what it compiles.

A program of its own, because XLA reads XLA_FLAGS once:
python tests/support/train_by_xla.py PAIRS prints the number of shapes as JSON.
"""

import json
import logging
import sys

import keras
from natural_corpus import natural_corpus

from keras_transformer.data import batching
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam
from keras_transformer.training.display import Compilations


def main(pairs):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = BatchPlan(natural_corpus(pairs), 487, length_growth=3.0)
    model = Transformer(
        vocab_size=pairs + 11, num_layers=1, d_model=6, num_heads=2, ffn_dim=7
    )
    model.compile(Adam(0.01), SmoothedCrossEntropy(), jit_compile=True)
    compilations = Compilations(plan, step=0)
    model.fit(
        batching.stream(plan),
        steps_per_epoch=2 * len(plan),
        shuffle=False,
        verbose=0,
        callbacks=[compilations],
    )
    seen = sorted(compilations.seen)
    print(json.dumps({"seen": seen, "shapes": plan.shapes()}))


if __name__ == "__main__":
    keras.utils.set_random_seed(3)
    main(int(sys.argv[1]))
