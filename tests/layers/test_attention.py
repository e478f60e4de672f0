import keras
import numpy as np
import paper
import pytest

from keras_transformer.layers import scaled_dot_product_attention

# B 2, T 4, S 6, H 3, K 5, U 7.
RANDOM = np.random.default_rng(0)
MASK = RANDOM.random((2, 1, 4, 6)) < 0.5
MASK[..., 0] = True  # Every query sees something.


def heads(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def test_attention_follows_equation_1_in_every_head():
    query, key, value = heads(2, 3, 4, 5), heads(2, 3, 6, 5), heads(2, 3, 6, 7)

    context, weights = scaled_dot_product_attention(query, key, value, MASK)

    assert context.shape == (2, 3, 4, 7)
    for b, h in np.ndindex(2, 3):
        of_head = paper.attention(
            query[b, h], key[b, h], value[b, h], MASK[b, 0]
        )
        np.testing.assert_allclose(context[b, h], of_head[0], 1e-5, 1e-6)
        np.testing.assert_allclose(weights[b, h], of_head[1], 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_a_query_with_no_key_to_see_spreads_its_weights_evenly(dtype, size):
    query = keras.ops.cast(size * heads(1, 1, 2, 5), dtype)
    key, value = (keras.ops.cast(heads(1, 1, 4, 5), dtype) for _ in range(2))
    nothing = np.zeros((1, 1, 2, 4), bool)

    context, weights = scaled_dot_product_attention(query, key, value, nothing)

    np.testing.assert_array_equal(keras.ops.cast(weights, "float32"), 0.25)
    assert np.all(np.isfinite(keras.ops.cast(context, "float32")))


def test_half_precision_scores_meet_a_float32_softmax():
    # 4,099 equal scores: in float16 the sum of exponentials sticks at 2,048.
    query = keras.ops.ones((1, 1, 1, 1), dtype="float16")
    key = keras.ops.zeros((1, 1, 4_099, 1), dtype="float16")

    context, weights = scaled_dot_product_attention(query, key, key)

    assert keras.backend.standardize_dtype(weights.dtype) == "float16"
    assert keras.backend.standardize_dtype(context.dtype) == "float16"
    np.testing.assert_allclose(weights, 1 / 4_099, rtol=1e-3)


def test_dropped_weights_weigh_nothing_and_returned_weights_are_whole():
    draw = np.random.default_rng(0)
    query, key, value = draw.normal(size=(3, 1, 2, 5, 7)).astype("float32")
    kept = draw.integers(0, 2, (1, 2, 5, 5)).astype("float32")
    whole, weights = scaled_dot_product_attention(query, key, value)
    found, same = scaled_dot_product_attention(
        query, key, value, dropout=lambda weights: weights * kept
    )
    np.testing.assert_array_equal(weights, same)
    np.testing.assert_allclose(found, weights * kept @ value, rtol=1e-5)
