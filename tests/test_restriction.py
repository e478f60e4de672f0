"""A `Transformer` of restricted self-attention, and what it costs."""

import numpy as np
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET_IN, make_model, model_of


@pytest.fixture(scope="module")
def restricted():
    return model_of("restricted")  # To 3 positions.


def test_a_restriction_as_long_as_the_sequences_changes_nothing(small_model):
    # Sources of 4 tokens at most, targets of 6.
    expected = small_model((SOURCE, TARGET_IN))
    wide = make_model(restriction=6)
    found = wide((SOURCE, TARGET_IN))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    narrow = make_model(restriction=5)((SOURCE, TARGET_IN))
    differs = ~np.isclose(narrow, expected, rtol=1e-3, atol=1e-3).all(-1)
    # The sixth position alone sees less: all others, not the first.
    assert differs[0].tolist() == [False] * 5 + [True]


def test_attention_is_zero_outside_the_neighbourhood(restricted):
    weights = restricted.attention_weights(SOURCE, TARGET_IN)
    for name, length, seen in (
        ("encoder", 4, lambda i, j: abs(i - j) < 3),
        ("decoder", 6, lambda i, j: 0 <= i - j < 3),
    ):
        for of_layer in weights[name]:
            # The first sentence has no padding.
            for i, j in np.ndindex(length, length):
                assert np.all((of_layer[0, :, i, j] > 0) == seen(i, j))
            np.testing.assert_allclose(np.sum(of_layer, -1), 1.0, rtol=1e-5)
    assert np.all(np.asarray(weights["cross"])[:, 0] > 0)


def graph_bytes(model, side, length):
    """Bytes of all tensors in the graph of a forward pass and its gradient."""
    ids = tf.TensorSpec([2, length], tf.int32)

    @tf.function(input_signature=[ids], autograph=False)
    def encode(ids):
        with tf.GradientTape() as tape:
            memory, _ = model.encode(ids)
        return tape.gradient(memory, model.encoder.trainable_variables)

    @tf.function(input_signature=[ids], autograph=False)
    def decode(ids):
        memory, source_mask = tf.zeros([2, 5, 10]), tf.fill([2, 1, 1, 5], True)
        with tf.GradientTape() as tape:
            logits = model.decode(ids, memory, source_mask)
        return tape.gradient(logits, model.decoder.trainable_variables)

    graph = {"encode": encode, "decode": decode}[side]
    return sum(
        tensor.shape.num_elements() * tensor.dtype.size
        for operation in graph.get_concrete_function().graph.get_operations()
        for tensor in operation.outputs
        if tensor.dtype != tf.resource
    )


@pytest.mark.slow
@pytest.mark.parametrize("side", ["encode", "decode"])
def test_memory_grows_linearly_with_the_length(side):
    # Every tensor there is, of which no more can be alive at a time.
    def growth(restriction):
        model = make_model(num_layers=1, restriction=restriction)
        sizes = [graph_bytes(model, side, n) for n in (70, 140, 210)]
        return np.diff(sizes)

    first, second = growth(restriction=7)
    assert first == second
    first, second = growth(restriction=None)
    assert second > 1.2 * first
