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


def test_tensorflow_tells_for_which_devices_it_has_an_operator():
    assert keras_internals.has_kernel("MatMul", "CPU")
    assert not keras_internals.has_kernel("MatMul", "abacus")


def test_keras_keeps_what_layers_added_to_the_loss_until_it_is_cleared():
    model = keras.Sequential(
        [keras.layers.Dense(1, activity_regularizer=keras.regularizers.L2())]
    )
    model(np.ones((2, 3)))
    assert len(model.losses) == 1
    keras_internals.clear_losses(model)
    assert model.losses == []


def test_keras_sums_gradients_over_replicas_in_a_method(monkeypatch):
    def refuse(self, gradients):
        raise InterruptedError

    kind = keras.optimizers.SGD
    monkeypatch.setattr(kind, "_all_reduce_sum_gradients", refuse)
    variable = keras.Variable(0.0)
    optimizer = keras.optimizers.LossScaleOptimizer(kind(1.0))
    optimizer.build([variable])
    gradients = [(tf.constant(optimizer.initial_scale), variable)]
    with keras_internals.summed_gradients(optimizer):
        optimizer.apply_gradients(gradients)
    assert variable.numpy() == -1
    with pytest.raises(InterruptedError):
        optimizer.apply_gradients(gradients)


def test_keras_tells_the_mask_that_it_attached():
    rows = keras.layers.Embedding(5, 2, mask_zero=True)(np.array([[1, 0]]))
    mask = keras_internals.implicit_mask(rows)
    assert np.array(mask).tolist() == [[True, False]]
    assert keras_internals.implicit_mask(tf.identity(rows)) is None


def test_keras_tells_a_trace_for_shapes_from_a_call():
    kinds = []

    def note(x):
        kinds.append(keras_internals.ids_to_come(x).dtype)
        return x

    layer = keras.layers.Lambda(note)
    layer.compute_output_spec(keras.KerasTensor((2, 3)))
    layer(np.ones((2, 3), "float32"))
    assert kinds == [tf.int32, tf.float32]


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
