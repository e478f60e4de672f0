"""The private names of Keras and TensorFlow that we use, one by one."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import keras_internals


class Remembering(keras.Sequential):
    """Remembers what it was built on."""

    spec = None

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        self.spec = data_batch
        super()._maybe_symbolic_build(iterator, data_batch)


class Built(keras_internals.BuiltFromSpec, Remembering):
    pass


@pytest.mark.parametrize("way", ["fit", "evaluate"])
def test_keras_builds_on_a_distributed_dataset_before_the_first_step(way):
    read = []

    def rows():
        read.append(True)
        yield np.ones((2, 3)), np.ones((2, 1))

    spec = tuple(tf.TensorSpec((2, n), tf.float64) for n in (3, 1))
    data = tf.data.Dataset.from_generator(rows, output_signature=spec)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = Built([keras.layers.Dense(1)])
        model.compile(loss="mse", metrics=["mae"])
    getattr(model, way)(data, verbose=0)
    assert model.spec == spec
    assert len(read) == 1


def test_keras_still_keeps_the_metrics_of_an_earlier_compile():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=["mae"])
    model.compile(loss="mse")
    data = np.ones((2, 3)), np.ones((2, 1))
    before = model.evaluate(*data, verbose=0, return_dict=True)
    assert before.keys() == {"loss", "mae"}
    keras_internals.forget_metrics(model)
    model.compile(loss="mse")
    after = model.evaluate(*data, verbose=0, return_dict=True)
    assert after.keys() == {"loss"}


def traced_graph():
    """A graph with a gradient of one's own, once nobody else holds it."""

    @tf.function(autograph=False)
    def gradient(x):
        double = tf.custom_gradient(
            lambda x: (2 * x, lambda upstream: 2 * upstream)
        )
        return tf.gradients(double(x), x)

    concrete = gradient.get_concrete_function(tf.TensorSpec([]))
    return weakref.ref(concrete.graph)


def test_tensorflow_keeps_graphs_unless_their_gradients_are_forgotten():
    kept = traced_graph()
    with keras_internals.gradients_forgotten():
        forgotten = traced_graph()
    gc.collect()
    assert kept() is not None
    assert forgotten() is None
