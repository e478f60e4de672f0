"""Layers as users of Keras know them: masks, functional models, sequences."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET_IN, close, functional_model, randomise

from keras_transformer import masks
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

# B 3, T 6, S 4; widths of queries, keys and values 10, 11 and 13.
RANDOM = np.random.default_rng(0)
QUERY, KEY, VALUE = (
    RANDOM.normal(size=shape).astype("float32")
    for shape in ((3, 6, 10), (3, 4, 11), (3, 4, 13))
)
MEMORY = RANDOM.normal(size=(3, 4, 10)).astype("float32")
SEEN = RANDOM.random((3, 6, 4)) < 0.5
SEEN[..., 0] = True  # Every query sees something, for no mask hides key 0.
QUERY_MASK, KEY_MASK = TARGET_IN != 0, SOURCE != 0
SIZES = dict(num_heads=3, key_dim=5, value_dim=7, ffn_dim=11, dropout=0.0)


def masked(array, mask):
    """A tensor with the mask that Keras attaches behind an `Embedding`."""
    tensor = tf.identity(array)
    tensor._keras_mask = tf.constant(mask)
    return tensor


@pytest.fixture(scope="module")
def pair():
    """Keras's layer, and ours with the same weights."""
    theirs = keras.layers.MultiHeadAttention(3, 5, 7, use_bias=False)
    ours = MultiHeadAttention(3, 5, 7)
    theirs(QUERY, VALUE, KEY)
    ours(QUERY, KEY, value=VALUE)
    kernels = [weight.numpy() for weight in randomise(theirs).weights]
    ours.query_kernel.assign(kernels[0].reshape(10, 15))
    ours.key_kernel.assign(kernels[1].reshape(11, 15))
    ours.value_kernel.assign(kernels[2].reshape(13, 21))
    ours.output_kernel.assign(kernels[3].reshape(21, 10))
    return theirs, ours


MASKS = {
    "nothing": {},
    "attention mask": {"attention_mask": SEEN},
    "integers": {"attention_mask": SEEN.astype("int32")},
    "mask for heads": {"attention_mask": SEEN[:, None]},
    "mask of one sentence": {"attention_mask": SEEN[0]},
    "causal": {"use_causal_mask": True},
}


@pytest.mark.parametrize("name", MASKS)
def test_attention_takes_the_masks_of_keras_and_means_the_same(pair, name):
    theirs, ours = pair
    asked = dict(return_attention_scores=True, **MASKS[name])
    expected, scores = theirs(QUERY, VALUE, KEY, **asked)
    output, weights = ours(QUERY, KEY, value=VALUE, **asked)
    close(output, expected)
    close(weights, scores)
    alone = ours(QUERY, KEY, value=VALUE, **MASKS[name])
    np.testing.assert_array_equal(alone, output)


@pytest.mark.parametrize("of", ["key", "value", "key and value"])
def test_attention_honours_the_masks_that_keras_attaches(pair, of):
    theirs, ours = pair
    key = masked(KEY, KEY_MASK) if "key" in of else KEY
    value = masked(VALUE, KEY_MASK) if "value" in of else VALUE
    close(ours(QUERY, key, value=value), theirs(QUERY, value, key))
    output = ours(masked(QUERY, QUERY_MASK), key, value=value)
    np.testing.assert_array_equal(output._keras_mask, QUERY_MASK)


def test_one_name_or_place_for_keys_and_values_is_enough(pair):
    layer = MultiHeadAttention(3, 5, 7)
    expected = layer(QUERY, MEMORY)
    np.testing.assert_array_equal(layer(QUERY, key=MEMORY), expected)
    np.testing.assert_array_equal(layer(QUERY, value=MEMORY), expected)
    # Nothing was built before this call.
    unbuilt = MultiHeadAttention(3, 5, 7)
    assert unbuilt(QUERY, value=MEMORY).shape == expected.shape
    with pytest.raises(ValueError, match="`key` or `value`"):
        layer(QUERY)


def test_three_tensors_without_names_are_refused():
    # The paper has the key before the value, Keras the value before the key.
    with pytest.raises(TypeError, match="too many positional arguments"):
        MultiHeadAttention(3, 5, 7)(QUERY, VALUE, KEY)


@pytest.mark.parametrize(
    "kind, scores",
    [(EncoderLayer, 1), (DecoderLayer, 2), (Encoder, 2), (Decoder, 4)],
)
def test_every_layer_that_attends_returns_all_scores_if_asked(kind, scores):
    stacked = dict(num_layers=2) if kind in (Encoder, Decoder) else {}
    layer = kind(**stacked, **SIZES, dtype="mixed_float16")
    arrays = [QUERY]
    if kind in (Decoder, DecoderLayer):
        arrays.append(MEMORY)
    inputs = [keras.Input(array.shape[1:]) for array in arrays]

    outputs = layer(*inputs, return_attention_scores=True)

    flat = keras.tree.flatten(outputs)
    # All of self-attention come before those of cross-attention.
    keys = [6] * scores
    if len(inputs) == 2:
        keys[scores // 2 :] = [4] * (scores // 2)
    assert [x.shape for x in flat] == [
        (None, 6, 10),
        *((None, 3, 6, length) for length in keys),
    ]
    assert {x.dtype for x in flat} == {"float16"}
    found = keras.Model(inputs, outputs)(arrays)
    for of_layer in keras.tree.flatten(found)[1:]:
        np.testing.assert_allclose(np.sum(of_layer, -1), 1, rtol=2**-8)
    np.testing.assert_array_equal(layer(*arrays), found[0])


@pytest.mark.parametrize(
    "layer", [EncoderLayer(**SIZES), Encoder(num_layers=2, **SIZES)]
)
def test_encoders_take_a_mask_of_the_keys_in_three_ways(layer):
    expected = layer(MEMORY, attention_mask=KEY_MASK[:, None, None])
    memory, everything = masked(MEMORY, KEY_MASK), np.ones((3, 4, 4), bool)
    for output in (
        layer(MEMORY, mask=KEY_MASK),
        layer(memory),
        layer(memory, attention_mask=everything),
    ):
        np.testing.assert_array_equal(output, expected)
    assert np.abs(layer(MEMORY) - expected).max() > 1e-3
    np.testing.assert_array_equal(layer(memory)._keras_mask, KEY_MASK)


@pytest.mark.parametrize(
    "layer", [DecoderLayer(**SIZES), Decoder(num_layers=2, **SIZES)]
)
def test_decoders_take_masks_of_both_sides_in_several_ways(layer):
    causal = masks.causal_mask(6)
    expected = layer(
        QUERY,
        MEMORY,
        self_mask=causal & QUERY_MASK[:, None, None],
        memory_mask=KEY_MASK[:, None, None],
    )
    query, memory = masked(QUERY, QUERY_MASK), masked(MEMORY, KEY_MASK)
    both = dict(inputs_mask=QUERY_MASK, memory_mask=KEY_MASK)
    everything = np.ones((3, 6, 4), bool)
    for output in (
        layer(query, memory, use_causal_mask=True),
        layer(query, memory, self_mask=causal),
        layer(query, memory, self_mask=causal, memory_mask=everything),
        layer(QUERY, MEMORY, use_causal_mask=True, **both),
    ):
        np.testing.assert_array_equal(output, expected)
    for less in (layer(QUERY, memory), layer(query, MEMORY)):
        assert np.abs(less - expected).max() > 1e-3
    np.testing.assert_array_equal(layer(query, memory)._keras_mask, QUERY_MASK)


@pytest.mark.parametrize("restriction", [None, 2])
@pytest.mark.parametrize("kind", [EncoderLayer, Encoder])
def test_a_causal_encoder_sees_no_later_position(kind, restriction):
    layer = kind(restriction=restriction, **SIZES)
    whole = layer(QUERY, mask=QUERY_MASK, use_causal_mask=True)
    seen = masks.causal_mask(6)
    close(whole, layer(QUERY, attention_mask=seen, mask=QUERY_MASK))
    for length in (1, 3):
        # What comes later changes nothing.
        inputs, mask = QUERY[:, :length], QUERY_MASK[:, :length]
        part = layer(inputs, mask=mask, use_causal_mask=True)
        close(part[mask], whole[:, :length][mask])


def test_a_tied_embedding_attaches_a_mask_only_if_asked_to():
    assert not hasattr(TiedEmbedding(23, 10)(SOURCE), "_keras_mask")
    embedding = TiedEmbedding(23, 10, mask_zero=True)
    rows = embedding(SOURCE)
    np.testing.assert_array_equal(rows._keras_mask, KEY_MASK)
    # On to the logits, where Keras's losses look for it.
    logits = embedding(rows, reverse=True)
    np.testing.assert_array_equal(logits._keras_mask, KEY_MASK)
    np.testing.assert_array_equal(logits, embedding.logits(rows))
    assert embedding.get_config()["mask_zero"]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_ids_may_be_integers_of_any_width(small_model, dtype):
    ids = SOURCE.astype(dtype), TARGET_IN.astype(dtype)
    expected = small_model((SOURCE, TARGET_IN))
    np.testing.assert_array_equal(small_model(ids), expected)


def test_ids_that_are_no_integers_are_refused():
    with pytest.raises(ValueError, match="Ids must be integers.*float32"):
        TiedEmbedding(23, 10)(SOURCE.astype("float32"))
    # Keras would round them before any layer sees them.
    with pytest.raises(ValueError, match="Ids must be integers"):
        TiedEmbedding(23, 10)(keras.Input((None,), dtype="bfloat16"))


@pytest.mark.parametrize("way", ["built", "called", "functional"])
def test_ids_of_no_declared_type_are_those_of_keras_s_embedding(tmp_path, way):
    keras_own = keras.layers.Embedding(23, 9, mask_zero=True)
    expected = keras_own(SOURCE)
    ours = TiedEmbedding(23, 9, mask_zero=True)
    model = keras.Sequential([ours])
    if way == "functional":
        model = keras.Model(inputs := keras.Input((None,)), ours(inputs))
    elif way == "built":
        model.build((None, 4))
    model(SOURCE)
    ours.table.assign(keras_own.embeddings / 3)
    model.save(tmp_path / "model.keras")
    for each in model, keras.models.load_model(tmp_path / "model.keras"):
        rows = each(SOURCE)
        close(rows, expected)
        np.testing.assert_array_equal(rows._keras_mask, expected._keras_mask)


def test_a_functional_model_of_the_layers_is_the_transformer(small_model):
    model = functional_model(num_layers=2, **SIZES)
    model.set_weights(small_model.get_weights())
    assert model.output_shape == (None, None, 23)
    found, expected = (x((SOURCE, TARGET_IN)) for x in (model, small_model))
    close(found[QUERY_MASK], expected[QUERY_MASK])


def test_a_functional_model_takes_a_target_mask_of_any_length():
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, keras.ops.squeeze(masks.target_mask(ids), 1))
    given = np.array([[2, 5, 0], [2, 5, 7]])
    expected = np.tril(np.ones((3, 3), bool)) & (given > 0)[:, None]
    np.testing.assert_array_equal(model(given), expected)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_layers_in_a_sequence_ignore_columns_of_padding(policy):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(23, 10, mask_zero=True, dtype=policy),
            PositionalEncoding(dtype=policy),
            Encoder(num_layers=2, **SIZES, dtype=policy),
            FeedForward(17, dtype=policy),
            # Takes the mean over what the mask leaves.
            keras.layers.GlobalAveragePooling1D(dtype=policy),
        ]
    )
    wider = np.pad(SOURCE, [(0, 0), (0, 3)])
    tolerance = 1e-5 if policy == "float32" else 2**-7
    close(model(wider), model(SOURCE), tolerance, tolerance)
    assert model.compute_output_shape((3, 4)) == (3, 10)
