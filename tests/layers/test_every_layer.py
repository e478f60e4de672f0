"""What holds of every layer: its config, its dtypes and its refusals."""

import math

import keras
import numpy as np
import pytest

import keras_transformer as kt
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
    attention_dropout=0.2,
    norm_first=True,
)
OF_MODEL = dict(num_layers=2, encoder_layers=1, decoder_layers=3)
OF_EMBEDDING = dict(logits_bias=True, tied_embeddings=False, source_end=False)
LAYERS = {
    MultiHeadAttention: dict(
        **HEADS, restriction=2, use_bias=True, dropout=0.2
    ),
    FeedForward: dict(ffn_dim=11, activation="swish"),
    TiedEmbedding: dict(vocab_size=7, d_model=5, mask_zero=True),
    PositionalEncoding: dict(
        positions="learned", max_positions=11, first_position=1
    ),
    EncoderLayer: BLOCK,
    DecoderLayer: BLOCK,
    Encoder: dict(num_layers=2, **BLOCK),
    Decoder: dict(num_layers=2, **BLOCK),
    kt.Transformer: dict(
        vocab_size=7, d_model=10, **OF_MODEL, **OF_EMBEDDING, **BLOCK
    ),
}
ENCODERS = (EncoderLayer, Encoder)
STACKS = (*ENCODERS, DecoderLayer, Decoder)
IDS = (TiedEmbedding, kt.Transformer)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_comes_back_from_its_config(kind):
    layer = kind(**LAYERS[kind], name="look", dtype="mixed_bfloat16")
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(again) is kind
    assert again.get_config() == layer.get_config()
    assert LAYERS[kind].items() <= again.get_config().items()
    if kind in STACKS:
        assert again.settings == LAYERS[kind]


@pytest.mark.parametrize("kind", [MultiHeadAttention, *STACKS])
@pytest.mark.parametrize("is_built", [False, True])
def test_a_batch_of_other_axes_is_refused_by_what_attends(kind, is_built):
    inputs = 1 if kind in ENCODERS else 2
    layer = kind(num_heads=2, key_dim=3)
    x = np.ones((5, 7, 10), "float32")
    if is_built:
        layer(*[x] * inputs)
    for batch in (x[0], x[None], keras.Input((10,))):
        with pytest.raises(ValueError, match="expected ndim=3, found ndim"):
            layer(*[batch] * inputs)


@pytest.mark.parametrize("kind", [MultiHeadAttention, DecoderLayer, Decoder])
def test_keys_without_a_batch_axis_are_refused(kind):
    layer, x = kind(num_heads=2, key_dim=3), np.ones((5, 7, 10), "float32")
    with pytest.raises(ValueError, match=r"axes \(B, S, D\)"):
        layer(x, x[:, 0])


@pytest.mark.parametrize("kind", [k for k in LAYERS if k not in IDS])
def test_a_layer_refuses_another_width_than_it_was_built_for(kind):
    inputs = 1 if kind in (FeedForward, PositionalEncoding, *ENCODERS) else 2
    layer = kind(**LAYERS[kind])
    layer(*[np.ones((2, 4, 10), "float32")] * inputs)
    with pytest.raises(ValueError, match="axis -1.*value 10"):
        layer(*[np.ones((2, 4, 12), "float32")] * inputs)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("kind", [k for k in LAYERS if k is not kt.Transformer])
def test_an_unbuilt_layer_tells_what_it_returns(kind, policy):
    layer = kind(**LAYERS[kind], dtype=policy)
    inputs = [np.ones((2, 4, 10), "float32")]
    if kind is TiedEmbedding:
        inputs = [np.ones((2, 4), "int32")]
    elif kind in (MultiHeadAttention, DecoderLayer, Decoder):
        inputs *= 2
    spec = layer.compute_output_spec(
        *[keras.KerasTensor(x.shape, x.dtype.name) for x in inputs]
    )
    found = layer(*inputs)
    assert (tuple(spec.shape), spec.dtype) == (found.shape, found.dtype.name)


@pytest.mark.parametrize("kind", [k for k in LAYERS if k not in IDS])
def test_a_functional_model_may_scale_what_a_layer_takes(kind):
    inputs = keras.Input((None, 10))
    scaled = inputs * 3.0  # To Keras, this is sparse.
    layer = kind(**LAYERS[kind])
    pair = kind in (MultiHeadAttention, DecoderLayer, Decoder)
    model = keras.Model(inputs, layer(*[scaled] * (1 + pair)))
    x = np.random.default_rng(0).normal(size=(2, 5, 10)).astype("float32")
    expected = layer(*[x * 3] * (1 + pair))
    np.testing.assert_allclose(model(x), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("kind", [DecoderLayer, Decoder])
def test_a_decoder_without_memory_is_refused(kind):
    with pytest.raises(ValueError, match="`memory` must be the encoder's"):
        kind(num_heads=2)(np.ones((5, 7, 10), "float32"), None)


@keras.saving.register_keras_serializable(package="test")
def halved(x):
    return x / 2


GELU = np.vectorize(lambda x: x * (1 + math.erf(x / 2**0.5)) / 2)


@pytest.mark.parametrize(
    "activation, expected",
    [("gelu", GELU), (keras.activations.gelu, GELU), (halved, halved)],
)
def test_any_activation_works_and_comes_back(tmp_path, activation, expected):
    inputs = keras.Input((None, 10))
    layer = FeedForward(11, activation)
    keras.Model(inputs, layer(inputs)).save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(0, 2, (2, 3, 10)).astype("float32")
    wide, narrow = layer.widen, layer.narrow
    found = expected(x @ wide.kernel.numpy()) @ narrow.kernel.numpy()
    np.testing.assert_allclose(again(x), found, 1e-5, 1e-5)


def test_an_activation_with_weights_is_refused():
    with pytest.raises(ValueError, match="`activation`.*PReLU"):
        FeedForward(11, keras.layers.PReLU())


@pytest.mark.parametrize("restriction", [None, 2])
@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_attention_dropout_drops_in_training_alone(kind, restriction):
    sizes = dict(num_layers=1, num_heads=2, ffn_dim=11, dropout=0.0)
    sizes["restriction"] = restriction
    plain, layer = kind(**sizes), kind(**sizes, attention_dropout=0.5)
    x = np.random.default_rng(0).normal(size=(2, 5, 10)).astype("float32")
    inputs = (x, x) if kind is Decoder else (x,)
    for each in (plain, layer):
        each(*inputs)
    layer.set_weights(plain.get_weights())
    expected = plain(*inputs)
    np.testing.assert_array_equal(layer(*inputs), expected)
    assert np.abs(layer(*inputs, training=True) - expected).max() > 1e-2


def last_kernels(layer):
    """Each sub-layer's matrix without which its update is zero."""
    ffn = layer.feed_forward.narrow.kernel
    if isinstance(layer, EncoderLayer):
        return [layer.attention.output_kernel, ffn]
    attentions = (layer.self_attention, layer.cross_attention)
    return [*(attention.output_kernel for attention in attentions), ffn]


@pytest.mark.parametrize("alive", [None, 0, 1, 2])
@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_dropout_falls_on_every_update_before_it_is_added(kind, alive):
    # An update of zero has nothing to drop, and the residual way stays whole.
    layer = kind(**HEADS, ffn_dim=11, dropout=0.5)
    x = np.random.default_rng(0).normal(size=(2, 4, 10)).astype("float32")
    inputs = (x, x) if kind is DecoderLayer else (x,)
    layer(*inputs)
    kernels = last_kernels(layer)
    for i, kernel in enumerate(kernels):
        if i != alive:
            kernel.assign(np.zeros(kernel.shape))

    still, training = layer(*inputs), layer(*inputs, training=True)

    # Training normalises by another formula, equal up to rounding.
    dropped = not np.allclose(still, training, atol=1e-4)
    assert dropped == (alive in range(len(kernels)))


def test_fresh_embeddings_and_logits_have_unit_variance():
    layer = TiedEmbedding(vocab_size=499, d_model=101)
    rows = np.asarray(layer(np.arange(499)[None]))
    inputs = np.random.default_rng(3).normal(size=(1, 97, 101))
    logits = np.asarray(layer.logits(inputs.astype("float32")))
    assert 0.95 < rows.std() < 1.05
    assert 0.9 < logits.std() < 1.1
