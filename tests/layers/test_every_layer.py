"""What holds of every layer: its config, its dtypes and its refusals."""

import keras
import numpy as np
import pytest

from keras_transformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEncoding,
    TiedEmbedding,
)
from keras_transformer.layers.normalization import LayerNormalization

HEADS = dict(num_heads=3, key_dim=5, value_dim=7)
# The last four are for imported weights alone.
BLOCK = dict(
    **HEADS,
    ffn_dim=11,
    dropout=0.3,
    restriction=2,
    activation="swish",
    norm_epsilon=0.25,
    attention_bias=True,
    norm_first=True,
)
LAYERS = {
    MultiHeadAttention: dict(**HEADS, restriction=2, use_bias=True),
    FeedForward: dict(ffn_dim=11, activation="swish"),
    TiedEmbedding: dict(vocab_size=7, d_model=5, mask_zero=True),
    PositionalEncoding: dict(
        positions="learned", max_positions=11, first_position=1
    ),
    EncoderLayer: BLOCK,
    DecoderLayer: BLOCK,
    Encoder: dict(num_layers=2, **BLOCK),
    Decoder: dict(num_layers=2, **BLOCK),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_comes_back_from_its_config(kind):
    layer = kind(**LAYERS[kind], name="look", dtype="mixed_bfloat16")
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(again) is kind
    assert again.get_config() == layer.get_config()
    assert LAYERS[kind].items() <= again.get_config().items()
    if kind in (EncoderLayer, DecoderLayer, Encoder, Decoder):
        assert again.settings == BLOCK


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "kind", [MultiHeadAttention, FeedForward, EncoderLayer, DecoderLayer]
)
def test_a_layer_computes_in_the_dtype_of_its_policy(kind, policy):
    settings = dict(HEADS, ffn_dim=11)
    if kind in (MultiHeadAttention, FeedForward):
        settings = LAYERS[kind]
    layer = kind(**settings, dtype=policy)
    x = np.ones((2, 4, 10), "float32")
    output = layer(x) if kind in (FeedForward, EncoderLayer) else layer(x, x)
    compute = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(output.dtype) == compute
    assert {weight.dtype for weight in layer.trainable_weights} == {"float32"}


BLOCKS = (EncoderLayer, DecoderLayer, Encoder, Decoder)
ATTENDING = (MultiHeadAttention, *BLOCKS)
EMPTY = "at least 1, received 0"


@pytest.mark.parametrize(
    "kinds, name, value, words",
    [
        (ATTENDING, "num_heads", 0, EMPTY),
        ([MultiHeadAttention], "key_dim", 0, EMPTY),
        ([MultiHeadAttention], "value_dim", 0, EMPTY),
        (ATTENDING, "restriction", 0, "in .1, "),
        ([FeedForward], "ffn_dim", 0, EMPTY),
        ([FeedForward, *BLOCKS], "activation", "gelo", "one of relu, swish"),
        ([TiedEmbedding], "vocab_size", 0, EMPTY),
        ([TiedEmbedding], "d_model", 0, EMPTY),
        ([PositionalEncoding], "positions", "rotary", "one of sinusoidal, "),
        ([PositionalEncoding], "max_positions", 0, EMPTY),
        ([PositionalEncoding], "first_position", -1, "at least 0, received -1"),
        (BLOCKS, "dropout", 1.0, "in .0, 1"),
        ([Encoder, Decoder], "num_layers", 0, EMPTY),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(kinds, name, value, words):
    for kind in kinds:
        with pytest.raises(ValueError, match=f"`{name}` to be {words}"):
            kind(**{**LAYERS[kind], name: value})


@pytest.mark.parametrize("epsilon", [-1e-6, 0.0, float("nan")])
def test_an_epsilon_that_may_divide_by_zero_is_refused(epsilon):
    message = f"`norm_epsilon` to be above 0 and finite, received {epsilon}"
    with pytest.raises(ValueError, match=message):
        LayerNormalization(epsilon=epsilon)
