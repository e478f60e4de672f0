"""Products with packed weights, against NumPy and against `MatMul`."""

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from model_searches import SOURCE, search_graph
from session_loader import operators_of
from small_models import make_model

from keras_transformer.config import Search
from keras_transformer.decoding import frozen_weights
from keras_transformer.decoding.frozen_weights import Int8Weights, PackedWeights
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.layers.products import products_in_use, replaced_by
from keras_transformer.machine import devices

PACKED = "_MklNativeFusedMatMul"
INT8 = "_QuantizedMatMul"
# What is tried: a processor without the instructions, and this one with them.
NEW = {
    name: [False, True] if devices.has(name) else [False]
    for name in devices.INSTRUCTIONS
}


def graph_of(function, frozen, *shapes, dtype=tf.float32):
    """The graph of a function whose products are made with these weights."""
    with replaced_by(frozen):
        return tf.function(
            function,
            input_signature=[tf.TensorSpec(shape, dtype) for shape in shapes],
            autograph=False,
        ).get_concrete_function()


def operators(graph):
    """Names of all operators, those of its functions included."""
    return operators_of(graph.graph.as_graph_def())


def product_graph(model, *shape, activation=None, int8=False):
    """The first feed-forward product of a model, of rows like these."""
    kernel, bias = wide(model)
    return graph_of(
        lambda rows: products_in_use().product(rows, kernel, bias, activation),
        (Int8Weights if int8 else PackedWeights)(model),
        shape,
        dtype=kernel.dtype,
    )


def draw(*shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return values.astype("float32")


def wide(model):
    """The first kernel and bias of a feed-forward network, `(10, 11)`."""
    layer = model.encoder.layers[0].feed_forward.widen
    return layer.kernel, layer.bias


@pytest.mark.parametrize("count", [1, 7, 89])
@pytest.mark.parametrize("activation", [None, "relu", "swish"])
def test_a_packed_product_is_that_of_numpy(count, activation):
    model = make_model()
    kernel, bias = wide(model)
    graph = product_graph(model, count, 10, activation=activation)
    rows = draw(count, 10)

    found = [graph(tf.constant(x)).numpy() for x in (rows, 2 * rows)]

    assert PACKED in operators(graph) and "MatMul" not in operators(graph)
    for x, result in zip((rows, 2 * rows), found, strict=True):
        expected = x @ kernel.numpy() + bias.numpy()
        if activation == "relu":
            expected = np.maximum(expected, 0)
        if activation == "swish":
            expected = expected / (1 + np.exp(-expected))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_float32_is_not_packed_where_the_number_of_rows_may_change():
    graph = product_graph(make_model(), None, 10)
    assert "MatMul" in operators(graph) and PACKED not in operators(graph)


@pytest.mark.parametrize("is_new", NEW["AVX-512"])
@pytest.mark.parametrize("count", [1, 7, 89])
def test_bfloat16_is_packed_for_any_number_of_rows_where_it_can_be(
    monkeypatch, count, is_new
):
    monkeypatch.setattr(devices, "has", lambda instructions: is_new)
    model = make_model(dtype="bfloat16")
    graph = product_graph(model, None, 10)
    rows = draw(count, 10).astype(ml_dtypes.bfloat16)

    graph(tf.constant(draw(3, 10), tf.bfloat16))  # Packs for other rows.
    found = graph(tf.constant(rows)).numpy()

    assert (PACKED in operators(graph)) == is_new
    kernel, bias = (
        np.asarray(keras.ops.cast(x, "float32")) for x in wide(model)
    )
    exact = rows.astype("float32") @ kernel + bias
    # 8 bits, of a sum that may be smaller than what is added.
    np.testing.assert_allclose(found.astype("float32"), exact, 0.01, 0.03)


def rounded(matrix, axis, largest):
    """The integers and what one of them is, by the definition."""
    units = np.abs(matrix).max(axis, keepdims=True) / largest
    return np.round(matrix / units), units


@pytest.mark.parametrize("is_new", NEW["VNNI"])
@pytest.mark.parametrize("count", [1, 7, 89])
def test_an_int8_product_sums_the_rounded_numbers(monkeypatch, count, is_new):
    monkeypatch.setattr(devices, "has", lambda instructions: is_new)
    largest = 127 if is_new else 63
    model = make_model()
    kernel, bias = wide(model)
    graph = product_graph(model, None, 10, activation="relu", int8=True)
    rows = draw(count, 10)

    graph(tf.constant(draw(3, 10, seed=1)))  # Packs for other rows.
    found = graph(tf.constant(rows)).numpy()

    assert INT8 in operators(graph)
    of_rows, row_units = rounded(rows, 1, 127)
    of_columns, column_units = rounded(kernel.numpy(), 0, largest)
    sums = of_rows @ of_columns
    expected = np.maximum(sums * row_units * column_units + bias.numpy(), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    # It is not float32's result.
    assert np.abs(found - np.maximum(rows @ kernel + bias, 0)).max() > 1e-3


def test_int8_zeros_give_zeros():
    model = make_model()
    kernel, bias = wide(model)
    rows = np.concatenate([np.zeros((1, 10), "float32"), draw(2, 10)])
    found = product_graph(model, None, 10, int8=True)(tf.constant(rows))
    np.testing.assert_array_equal(found[0], bias.numpy())
    assert np.isfinite(found).all()
    kernel.assign(np.zeros((10, 11)))
    found = product_graph(model, None, 10, int8=True)(tf.constant(rows))
    np.testing.assert_array_equal(found, np.tile(bias.numpy(), (3, 1)))


@pytest.mark.parametrize(
    "beam_size", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 8))]
)
def test_a_search_with_packed_weights_finds_what_one_without_finds(beam_size):
    model = make_model()
    options = Search(beam_size=beam_size, max_extra_length=23)
    plain, packed = (
        search_graph(IdModel(model, frozen), options).get_concrete_function()
        for frozen in (None, PackedWeights(model))
    )
    assert PACKED in operators(packed) and PACKED not in operators(plain)
    for source in (SOURCE, SOURCE[1:2], SOURCE[2:3]):
        found, expected = (
            graph(tf.constant(source)) for graph in (packed, plain)
        )
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    # A single sentence stays known as one through the whole search: otherwise
    # its products would not be packed. In each of two decoder layers six of
    # attention and two; and the logits.
    library = packed.graph.as_graph_def().library.function
    counts = [
        sum(node.op == PACKED for node in function.node_def)
        for function in library
    ]
    assert max(counts) == 2 * (4 + 2 + 2) + 1


def test_a_tensorflow_without_an_operator_is_found_out():
    assert frozen_weights.missing_operators(["MatMul", "NoSuch"]) == ["NoSuch"]
