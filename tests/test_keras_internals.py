"""The private names of Keras and TensorFlow that we use, one by one."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET_IN, make_model

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


def test_loss_tracker_is_what_fit_reports_as_loss():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    history = model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0).history
    tracker = keras_internals.loss_tracker(model)
    assert float(tracker.result()) == pytest.approx(history["loss"][0])
    assert tracker in model.metrics


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


def test_clear_losses_forgets_what_was_added():
    model = keras.Sequential([keras.layers.ActivityRegularization(l1=1.0)])
    model(np.ones((2, 3)))
    assert [float(loss) for loss in model.losses] == [3.0]
    keras_internals.clear_losses(model)
    assert not model.losses


def test_flatten_layers_gives_every_seed_generator_in_one_order():
    model = make_model(dropout=0.1)
    generators = keras_internals.seed_generators(model)
    states = [
        v.path
        for v in model.non_trainable_variables
        if v.name == "seed_generator_state"
    ]
    # Two sums of embeddings, two sub-layers in 2 encoder and three in 2
    # decoder layers.
    assert len(generators) == len(states) == 2 + 2 * 2 + 3 * 2
    assert {g.state.path for g in generators} == set(states)
    again = keras_internals.seed_generators(model)
    assert all(a is b for a, b in zip(generators, again, strict=True))


@pytest.mark.parametrize("scaled", [False, True])
def test_all_reduce_sum_gradients_is_left_out_and_comes_back(scaled):
    inner = optimizer = keras.optimizers.SGD(0.5)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(
            inner, initial_scale=4.0
        )
    variable = keras.Variable(np.zeros(3))
    called = []
    original = type(inner)._all_reduce_sum_gradients

    class Watched(type(inner)):
        def _all_reduce_sum_gradients(self, grads_and_vars):
            called.append(True)
            return original(self, grads_and_vars)

    inner.__class__ = Watched
    before = set(vars(inner)) | {"_trainable_variables"}
    optimizer.build([variable])
    scale = 4.0 if scaled else 1.0
    gradient = tf.constant([1.0, 2.0, 3.0]) * scale

    with keras_internals.summed_gradients(optimizer):
        optimizer.apply_gradients([(gradient, variable)])
    assert not called
    assert "_all_reduce_sum_gradients" not in vars(inner)
    optimizer.apply_gradients([(gradient, variable)])
    assert called
    assert before <= set(vars(inner))
    # Both updates were made: twice 0.5 times the gradient.
    np.testing.assert_allclose(variable.numpy(), [-1.0, -2.0, -3.0])


def test_optimizer_and_model_know_the_strategy_they_were_made_in():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        inside, model = keras.optimizers.SGD(), make_model(num_layers=1)
    outside = keras.optimizers.SGD()
    of = keras_internals.strategy_of_optimizer
    assert of(inside) is strategy
    assert of(outside) is tf.distribute.get_strategy()
    assert model.distribute_strategy is strategy
    outside = make_model(num_layers=1)
    assert outside.distribute_strategy is tf.distribute.get_strategy()


def test_momentums_and_velocities_are_the_moments_of_their_variable():
    optimizer = keras.optimizers.Adam(beta_1=0.75, beta_2=0.5)
    variables = [keras.Variable(np.zeros(n)) for n in (2, 3)]
    optimizer.build(variables)
    gradients = [tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0, 5.0])]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    for gradient, variable in zip(gradients, variables, strict=True):
        mean, square = keras_internals.adam_slots(optimizer, variable)
        np.testing.assert_allclose(mean.numpy(), 0.25 * gradient)
        np.testing.assert_allclose(square.numpy(), 0.5 * gradient**2)


def test_what_updates_share_is_made_once_of_the_learning_rate():
    made, given = [], []

    class Descent(keras_internals.SharedByUpdates, keras.optimizers.SGD):
        def shared_by_updates(self, learning_rate):
            made.append(float(learning_rate))
            return "shared"

        def update_step(self, gradient, variable, shared):
            given.append((shared, variable.shape[0]))

    variables = [keras.Variable(np.zeros(n)) for n in (2, 3)]
    gradients = [tf.zeros(2), tf.zeros(3)]
    Descent(0.25).apply(gradients, variables)
    assert made == [0.25]
    assert given == [("shared", 2), ("shared", 3)]


def test_keras_mask_is_what_an_embedding_attaches():
    embedding = keras.layers.Embedding(23, 5, mask_zero=True)
    mask = keras_internals.implicit_mask(embedding(SOURCE))
    np.testing.assert_array_equal(mask, SOURCE != 0)
    assert keras_internals.implicit_mask(tf.constant(SOURCE)) is None


def test_keras_still_leaves_a_model_with_its_own_compile_uncompiled(tmp_path):
    # This is why `ExactModel` has a `compile_from_config`.
    model = make_model(num_layers=1)
    model.compile("sgd", "mse", jit_compile=False)
    with pytest.warns(UserWarning, match="method is custom"):
        keras.Model.compile_from_config(model, model.get_compile_config())
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.compiled
    np.testing.assert_array_equal(
        again((SOURCE, TARGET_IN)), model((SOURCE, TARGET_IN))
    )


def test_tensorflow_says_what_its_operators_run_on():
    assert keras_internals.has_kernel("MatMul", "CPU")
    assert not keras_internals.has_kernel("MatMul", "NoSuch")
    assert not keras_internals.has_kernel("NoSuch", "CPU")


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
