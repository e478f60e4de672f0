import keras
import numpy as np
import paper
import pytest
from small_models import feed_forward_weights, randomise

from keras_transformer.layers import FeedForward

# B 2, T 3, D 5, inner width 11.
INPUTS = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")


@pytest.fixture(scope="module")
def feed_forward():
    layer = FeedForward(ffn_dim=11)
    layer.build(INPUTS.shape)
    return randomise(layer)


def test_layer_follows_equation_2(feed_forward):
    weights = feed_forward_weights(feed_forward)
    output = feed_forward(INPUTS)
    assert output.shape == (2, 3, 5)
    np.testing.assert_allclose(
        output, paper.feed_forward(INPUTS, weights), rtol=1e-4, atol=1e-5
    )


def test_negative_inner_units_are_cut_off():
    # max(0, x) - 2 max(0, -x) + 1, by hand.
    layer = FeedForward(ffn_dim=2)
    layer.build((1, 3, 1))
    layer.widen.kernel.assign([[1.0, -1.0]])
    layer.narrow.kernel.assign([[1.0], [-2.0]])
    layer.narrow.bias.assign([1.0])
    output = layer(np.array([[[3.0], [0.0], [-4.0]]], "float32"))
    np.testing.assert_array_equal(output[0, :, 0], [4.0, 1.0, -7.0])


def test_positions_do_not_mix(feed_forward):
    changed = INPUTS.copy()
    changed[:, 1] += 1.0
    before, after = feed_forward(INPUTS), feed_forward(changed)
    np.testing.assert_allclose(before[:, 0], after[:, 0], rtol=1e-6)
    np.testing.assert_allclose(before[:, 2], after[:, 2], rtol=1e-6)
    assert np.all(np.any(np.asarray(before[:, 1] != after[:, 1]), axis=-1))


def test_layer_computes_in_the_dtype_of_its_policy():
    layer = FeedForward(ffn_dim=11, dtype="mixed_float16")
    assert keras.backend.standardize_dtype(layer(INPUTS).dtype) == "float16"
    assert {weight.dtype for weight in layer.weights} == {"float32"}


def test_layer_comes_back_from_its_config():
    layer = FeedForward(11, name="think", dtype="mixed_bfloat16")
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert isinstance(again, FeedForward)
    assert again.get_config() == layer.get_config()
    assert again.ffn_dim == 11


@pytest.mark.parametrize("value", [0, -4])
def test_layer_refuses_a_width_below_1(value):
    message = f"`ffn_dim` to be at least 1, received {value}"
    with pytest.raises(ValueError, match=message):
        FeedForward(value)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="one of relu, swish"):
        FeedForward(ffn_dim=11, activation="gelo")
