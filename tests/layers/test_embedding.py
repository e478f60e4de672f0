import numpy as np

from keras_transformer.layers import TiedEmbedding


def test_fresh_embeddings_and_logits_have_unit_variance():
    layer = TiedEmbedding(vocab_size=499, d_model=101)
    rows = np.asarray(layer(np.arange(499)[None]))
    inputs = np.random.default_rng(3).normal(size=(1, 97, 101))
    logits = np.asarray(layer.logits(inputs.astype("float32")))
    assert 0.95 < rows.std() < 1.05
    assert 0.9 < logits.std() < 1.1
