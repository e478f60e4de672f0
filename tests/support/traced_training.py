"""The graph of a training step of a small model."""

import tensorflow as tf
from small_models import SIZES

from keras_transformer.losses import SmoothedCrossEntropy
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def train_step_graph(precision, accumulate, strategy=None, **changes):
    """A `GraphDef`: the gradient by XLA, the update, the logs."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = Transformer(
            dropout=0.1,
            dtype=precision,
            **SIZES,
            **changes,
        )
        model.compile(
            Adam(),
            SmoothedCrossEntropy(0.1),
            jit_compile=True,
            accumulate=accumulate,
        )
        model.optimizer.build(model.trainable_variables)
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(autograph=False)
    def step(batch):
        return strategy.run(model.train_step, args=(batch,))

    return step.get_concrete_function(((ids, ids), ids)).graph.as_graph_def()
