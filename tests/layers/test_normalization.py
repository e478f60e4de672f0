import numpy as np
import tensorflow as tf

from keras_transformer.layers.block import LayerNormalization


def layer_of(width, dtype="float32"):
    layer = LayerNormalization(dtype=dtype)
    layer.build((None, None, width))
    random = np.random.default_rng(5)
    layer.set_weights(random.normal(size=(2, width)))
    return layer


def by_hand(x, gamma, beta):
    x = x.astype("float64")
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return (x - x.mean(-1, keepdims=True)) / deviation * gamma + beta


def test_gradients_are_the_quotients_of_small_differences():
    layer = layer_of(5)
    random = np.random.default_rng(7)
    x = random.normal(size=(3, 2, 5))
    upstream = random.normal(size=x.shape)
    inputs = tf.constant(x, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(layer(inputs, training=True) * upstream)
    gradients = tape.gradient(total, [inputs, *layer.trainable_variables])

    values = [x, *(w.astype("float64") for w in layer.get_weights())]

    for value, gradient in zip(values, gradients, strict=True):
        expected = np.zeros_like(value)
        for i in np.ndindex(*value.shape):
            before = value[i]
            value[i] = before + 1e-5
            above = np.sum(by_hand(*values) * upstream)
            value[i] = before - 1e-5
            below = np.sum(by_hand(*values) * upstream)
            expected[i] = (above - below) / 2e-5
            value[i] = before
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_half_precision_keeps_its_statistics_in_float32():
    layer = layer_of(11, "mixed_float16")
    # Squares beyond the largest float16, 65,504.
    x = np.random.default_rng(3).normal(0.0, 900.0, (2, 3, 11))
    x = x.astype("float16")
    y = layer(x, training=True)
    assert y.dtype == "float16"
    expected = by_hand(x, *layer.get_weights())
    np.testing.assert_allclose(y, expected, rtol=1e-2, atol=1e-2)
