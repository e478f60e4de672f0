"""The two stages of `top_k` against TensorFlow's one."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.decoding.candidates import chunk_width, top_k


# Few different values make many ties; sizes with large and small divisors.
@given(
    size=st.sampled_from([7, 97, 1000, 16 * 251]),
    k=st.integers(1, 7),
    seed=st.integers(0, 10_000),
    levels=st.sampled_from([2, 2_000, 1_000_000]),
)
@settings(max_examples=100, deadline=None)
def test_top_k_is_that_of_tensorflow(size, k, seed, levels):
    rows = np.random.default_rng(seed).integers(0, levels, (2, 3, size))
    rows = tf.constant(rows, tf.float32)

    values, indices = top_k(rows, k)

    expected_values, expected_indices = tf.math.top_k(rows, k)
    np.testing.assert_array_equal(values, expected_values)
    np.testing.assert_array_equal(indices, expected_indices)


def test_the_lower_index_is_first_though_its_chunk_is_not_the_best():
    row = np.zeros([1, 1, 16 * 67], "float32")
    row[0, 0, [3, 900, 901]] = [5, 9, 5]

    values, indices = top_k(tf.constant(row), 3)

    np.testing.assert_array_equal(values[0, 0], [9, 5, 5])
    np.testing.assert_array_equal(indices[0, 0], [900, 3, 901])


@pytest.mark.parametrize(
    "size, widest, width",
    [(4_000, 63.2, 50), (32_000, 126.5, 125), (97, 50, 97), (12, 0.5, 12)],
)
def test_a_chunk_is_the_widest_that_divides_and_else_the_whole(
    size, widest, width
):
    assert chunk_width(size, widest) == width
