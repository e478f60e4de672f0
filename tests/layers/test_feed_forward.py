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
