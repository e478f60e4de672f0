import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import randomise

from keras_transformer.layers import TiedEmbedding

# B 2, T 3, V 7, D 5.
IDS = np.array([[4, 0, 6], [4, 2, 4]], "int32")
INPUTS = np.random.default_rng(1).normal(size=(2, 3, 5)).astype("float32")


@pytest.fixture
def embedding():
    layer = TiedEmbedding(vocab_size=7, d_model=5)
    layer.build()
    return randomise(layer)


def test_ids_become_their_rows_times_the_root_of_the_width(embedding):
    table = embedding.table.numpy()
    output = embedding(IDS)
    assert output.shape == (2, 3, 5)
    np.testing.assert_allclose(output, table[IDS] * np.sqrt(5), rtol=1e-6)


def test_logits_are_products_with_every_row_unscaled(embedding):
    table = embedding.table.numpy()
    logits = embedding.logits(INPUTS)
    assert logits.shape == (2, 3, 7)
    np.testing.assert_allclose(logits, INPUTS @ table.T, rtol=1e-4, atol=1e-6)


def test_one_matrix_serves_both_ends(embedding):
    (table,) = embedding.weights
    assert tuple(table.shape) == (7, 5)
    rows, logits = np.array(embedding(IDS)), np.array(embedding.logits(INPUTS))

    table.assign(-2 * table)

    np.testing.assert_allclose(embedding(IDS), -2 * rows, rtol=1e-6)
    np.testing.assert_allclose(embedding.logits(INPUTS), -2 * logits, rtol=1e-6)


def test_gradient_is_the_sum_of_both_paths(embedding):
    # L = sum of C * (sqrt(D) E[ids] E^T): C E sqrt(D) falls on the rows that
    # were looked up, C^T E[ids] sqrt(D) on all of them.
    table = embedding.table.numpy()
    outer = np.random.default_rng(2).normal(size=(2, 3, 7)).astype("float32")
    expected = np.zeros((7, 5))
    for b, t in np.ndindex(2, 3):
        expected[IDS[b, t]] += outer[b, t] @ table
        expected += np.outer(outer[b, t], table[IDS[b, t]])

    with tf.GradientTape() as tape:
        logits = embedding.logits(embedding(IDS))
        loss = tf.reduce_sum(outer * logits)
    gradient = tape.gradient(loss, embedding.table.value)

    np.testing.assert_allclose(
        tf.convert_to_tensor(gradient), expected * np.sqrt(5), rtol=1e-4
    )


def test_fresh_embeddings_and_logits_have_unit_variance():
    layer = TiedEmbedding(vocab_size=499, d_model=101)
    rows = np.asarray(layer(np.arange(499)[None]))
    inputs = np.random.default_rng(3).normal(size=(1, 97, 101))
    logits = np.asarray(layer.logits(inputs.astype("float32")))
    assert 0.95 < rows.std() < 1.05
    assert 0.9 < logits.std() < 1.1


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_logits_are_float32_under_half_precision(policy):
    layer = TiedEmbedding(vocab_size=7, d_model=5, dtype=policy)
    rows = layer(IDS)
    logits = layer.logits(rows)
    compute = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(rows.dtype) == compute
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert layer.table.dtype == "float32"


def test_layer_comes_back_from_its_config(embedding):
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(embedding)
    )
    assert isinstance(again, TiedEmbedding)
    assert again.get_config() == embedding.get_config()
    assert (again.vocab_size, again.d_model) == (7, 5)


@pytest.mark.parametrize("name", ["vocab_size", "d_model"])
def test_layer_refuses_sizes_below_1(name):
    message = f"`{name}` to be at least 1, received 0"
    with pytest.raises(ValueError, match=message):
        TiedEmbedding(**{"vocab_size": 7, "d_model": 5, name: 0})
