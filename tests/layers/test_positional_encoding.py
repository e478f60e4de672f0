import math

import keras
import numpy as np
import paper
import pytest

from keras_transformer.layers import PositionalEncoding, positional_encoding

INPUTS = np.random.default_rng(0).normal(size=(3, 5, 14)).astype("float32")


@pytest.mark.parametrize("d_model", [2, 14, 512])
def test_table_follows_the_formula(d_model):
    expected = paper.positional_encoding(101, d_model)
    found = positional_encoding(101, d_model)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("position", [257, 1_023, 100_003])
def test_large_positions_lose_only_what_float32_angles_lose(position):
    # An angle of 100,003 has float32 neighbours 0.008 apart.
    row = positional_encoding(1, 512, start=position)[0]
    rates = 10_000.0 ** (-np.arange(0, 512, 2) / 512)
    exact = np.stack([np.sin(position * rates), np.cos(position * rates)], -1)
    tolerance = 2e-7 * position + 1e-6
    np.testing.assert_allclose(row, exact.ravel(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("d_model", [4, 14, 512])
def test_tensor2tensors_wavelengths_reach_ten_thousand_turns(d_model):
    # `get_timing_signal_1d` of tensor2tensor, in float64.
    half = d_model // 2
    table = np.zeros((11, d_model))
    for pos in range(11):
        for i in range(half):
            angle = (pos + 3) * math.exp(-i * math.log(10_000) / (half - 1))
            table[pos, i] = math.sin(angle)
            table[pos, half + i] = math.cos(angle)
    layer = PositionalEncoding("tensor2tensor", first_position=1)
    output = layer(np.zeros((1, 11, d_model), "float32"), start=2)
    np.testing.assert_allclose(output[0], table, atol=2e-6)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_may_be_counted_from_another_than_0(positions):
    layers = [
        PositionalEncoding(positions, max_positions=7, first_position=first)
        for first in (0, 2)
    ]
    for layer in layers:
        layer.build(INPUTS.shape)
    if positions == "learned":
        layers[1].table.assign(layers[0].table)
    np.testing.assert_array_equal(layers[1](INPUTS), layers[0](INPUTS, start=2))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_table_is_float32_whatever_the_policy(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        table = positional_encoding(1, 14, start=257)
    finally:
        keras.config.set_dtype_policy(before)
    # 257 is no bfloat16 number, 256 and 258 are.
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    expected = paper.positional_encoding(258, 14)[257:]
    np.testing.assert_allclose(table, expected, atol=1e-4)


@pytest.mark.parametrize("d_model", [-2, 0, 1, 7])
def test_sinusoids_refuse_a_width_that_has_no_pairs(d_model):
    with pytest.raises(ValueError, match=f"`d_model` to be even.* {d_model}"):
        positional_encoding(4, d_model)


def test_positions_beyond_the_learned_table_share_its_last_row():
    layer = PositionalEncoding("learned", max_positions=3)
    output = layer(np.zeros((1, 5, 14), "float32"))
    table = layer.table.numpy()
    np.testing.assert_array_equal(output[0], table[[0, 1, 2, 2, 2]])
