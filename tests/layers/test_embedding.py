import keras
import numpy as np
import pytest

from keras_transformer.layers import TiedEmbedding

# B 2, T 3, V 7, D 5.
IDS = np.array([[4, 0, 6], [4, 2, 4]], "int32")


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
