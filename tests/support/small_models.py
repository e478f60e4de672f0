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


# `read` turns a variable into an array: its value, or say its gradient.


def attention_weights(layer, read=numpy64):
    """The matrices of a `MultiHeadAttention` as `paper.py` names them."""
    heads = layer.num_heads
    return {
        "Q": np.split(read(layer.query_kernel), heads, axis=1),
        "K": np.split(read(layer.key_kernel), heads, axis=1),
        "V": np.split(read(layer.value_kernel), heads, axis=1),
        "O": read(layer.output_kernel),
    }


def feed_forward_weights(layer, read=numpy64):
    return {
        "W1": read(layer.widen.kernel),
        "b1": read(layer.widen.bias),
        "W2": read(layer.narrow.kernel),
        "b2": read(layer.narrow.bias),
    }


def encoder_layer_weights(layer, read=numpy64):
    return {
        "self": attention_weights(layer.attention, read),
        "norm1": _norm(layer.attention_norm, read),
        "ffn": feed_forward_weights(layer.feed_forward, read),
        "norm2": _norm(layer.feed_forward_norm, read),
    }


def decoder_layer_weights(layer, read=numpy64):
    return {
        "self": attention_weights(layer.self_attention, read),
        "cross": attention_weights(layer.cross_attention, read),
        "ffn": feed_forward_weights(layer.feed_forward, read),
        **{
            f"norm{i}": _norm(norm, read)
            for i, norm in enumerate(layer.norms, start=1)
        },
    }


def paper_weights(model, read=numpy64):
    """All weights of a `Transformer`, for `paper.transformer`."""
    weights = {
        "embedding": read(model.embedding.table),
        "encoder": [
            encoder_layer_weights(layer, read) for layer in model.encoder.layers
        ],
        "decoder": [
            decoder_layer_weights(layer, read) for layer in model.decoder.layers
        ],
    }
    if model.model_config.positions == "learned":
        weights["positions"] = {
            "source": read(model.source_positions.table),
            "target": read(model.target_positions.table),
        }
    return weights


def _norm(layer, read):
    return {"gain": read(layer.gamma), "bias": read(layer.beta)}
