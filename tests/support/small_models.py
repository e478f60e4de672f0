"""A small Transformer, its weights in the paper's names, and a batch for it."""

import functools

import keras
import numpy as np

from keras_transformer.layers import (
    Decoder,
    Encoder,
    PositionalEncoding,
    TiedEmbedding,
)
from keras_transformer.model import Transformer

# Distinct primes, so that no swapped axis goes unseen; only d_model is even.
SIZES = dict(
    vocab_size=23,
    num_layers=2,
    d_model=10,
    num_heads=3,
    key_dim=5,
    value_dim=7,
    ffn_dim=11,
    max_positions=13,
)

# Lengths 4 and 6 at most, of unequal rows; ids 4 to 22, end 3, begin 2, pad 0.
SOURCE = np.array([[5, 9, 17, 3], [22, 3, 0, 0], [4, 12, 3, 0]], "int32")
TARGET_IN = np.array(
    [[2, 8, 20, 6, 11, 15], [2, 7, 19, 0, 0, 0], [2, 0, 0, 0, 0, 0]], "int32"
)
TARGET = np.array(
    [[8, 20, 6, 11, 15, 3], [7, 19, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0]], "int32"
)


def close(actual, expected, rtol=1e-4, atol=2e-5):
    np.testing.assert_allclose(actual, expected, rtol, atol)


def make_model(**changes):
    """A `Transformer` of `SIZES` whose every weight is random, norms too."""
    return randomise(Transformer(**{**SIZES, "dropout": 0.0, **changes}))


# What a `Transformer` can be made to be.
KINDS = {
    "sinusoidal": {},
    "learned": dict(positions="learned"),
    "deep encoder": dict(encoder_layers=3, decoder_layers=1),
    "deep decoder": dict(encoder_layers=1, decoder_layers=3),
    "restricted": dict(restriction=3),
    "pre-norm": dict(
        norm_first=True,
        positions="tensor2tensor",
        first_position=1,
        tied_embeddings=False,
        source_end=False,
    ),
    "with biases": dict(
        activation="swish",
        norm_epsilon=1e-3,
        attention_bias=True,
        logits_bias=True,
    ),
}


@functools.cache
def model_of(kind):
    """The model of a kind. Not to be changed."""
    return make_model(**KINDS[kind])


def randomise(layer, seed=0):
    """Draw the weights with NumPy: zeros and ones would hide mistakes.

    Keras's own seed stays untouched, since setting it makes TensorFlow forget
    the tokenizers of other tests.
    """
    draw = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(draw.normal(0, 0.5, weight.shape))
    return layer


def functional_model(**sizes):
    """A Transformer of the layers alone, whose masks its embedding attaches."""
    source, target_in = (
        keras.Input([None], dtype="int32", name=name)
        for name in ("source", "target_in")
    )
    embedding = TiedEmbedding(23, 10, mask_zero=True)
    positions = PositionalEncoding()
    memory = Encoder(**sizes)(positions(embedding(source)))
    x = positions(embedding(target_in))
    x = Decoder(**sizes)(x, memory, use_causal_mask=True)
    return keras.Model([source, target_in], embedding(x, reverse=True))


def sentence(ids):
    """A row without its padding."""
    return ids[ids != 0]


def numpy64(variable):
    return variable.numpy().astype("float64")


def paper_weights(model, read=numpy64):
    """All weights of a `Transformer`, for `paper.transformer`.

    `read` turns a variable into an array: its value, or say its gradient.
    """

    def of_attention(layer):
        kernels = layer.query_kernel, layer.key_kernel, layer.value_kernel
        heads = [np.split(read(x), layer.num_heads, axis=1) for x in kernels]
        return dict(zip("QKV", heads, strict=True), O=read(layer.output_kernel))

    def of_layer(layer, norms, **attentions):
        wide, narrow = layer.feed_forward.widen, layer.feed_forward.narrow
        of_both = wide.kernel, wide.bias, narrow.kernel, narrow.bias
        named = zip(("W1", "b1", "W2", "b2"), map(read, of_both), strict=True)
        found = {name: of_attention(x) for name, x in attentions.items()}
        for i, norm in enumerate(norms, start=1):
            found[f"norm{i}"] = dict(
                gain=read(norm.gamma), bias=read(norm.beta)
            )
        return {**found, "ffn": dict(named)}

    weights = {
        "embedding": read(model.embedding.table),
        "encoder": [
            of_layer(
                x, [x.attention_norm, x.feed_forward_norm], self=x.attention
            )
            for x in model.encoder.layers
        ],
        "decoder": [
            of_layer(x, x.norms, self=x.self_attention, cross=x.cross_attention)
            for x in model.decoder.layers
        ],
    }
    if model.model_config.positions == "learned":
        weights["positions"] = {
            "source": read(model.source_positions.table),
            "target": read(model.target_positions.table),
        }
    return weights
