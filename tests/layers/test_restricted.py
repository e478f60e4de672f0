"""Restricted self-attention is full attention with a band for a mask.

Its memory grows with the length, not with its square.
"""

import functools

import keras
import numpy as np
import paper
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_models import make_model, randomise

from keras_transformer import masks
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.layers import Decoder, Encoder, MultiHeadAttention
from keras_transformer.layers.restricted import restricted_attention

# B 2, H 3, K 5, U 7, D 10; inner width 11.
SIZES = dict(num_heads=3, key_dim=5, value_dim=7)
MASKS = {
    "none": None,
    "keys": (2, 1, 1, "T"),
    "rows": (2, 1, 1, 1),
    "queries": (2, 1, "T", 1),
    "pairs": (2, 1, "T", "T"),
    "pairs of a head": (2, 3, "T", "T"),
    "pairs of all": ("T", "T"),
}


def band(length, restriction, causal):
    """The positions j that each position i sees, by loops: `(T, T)`."""
    seen = np.zeros((length, length), bool)
    for i, j in np.ndindex(seen.shape):
        seen[i, j] = abs(i - j) < restriction and not (causal and j > i)
    return seen


def qkv(random, length):
    return [
        random.normal(size=(2, 3, length, width)).astype("float32")
        for width in (5, 5, 7)
    ]


def by_definition(query, key, value, mask):
    """Equation 1 head by head; the mean where nothing is to be seen."""
    context = np.zeros(value.shape)
    weights = np.zeros((*value.shape[:3], value.shape[2]))
    mask = np.broadcast_to(mask, weights.shape)
    for b, h, t in np.ndindex(value.shape[:3]):
        seen = mask[b, h, t : t + 1]
        if not seen.any():
            seen = None
            query = query.copy()
            query[b, h, t] = 0  # Even weights.
        row = query[b, h, t : t + 1].astype("float64")
        found = paper.attention(row, key[b, h], value[b, h], seen)
        context[b, h, t], weights[b, h, t] = found
    return context, weights


@settings(max_examples=60)
@given(
    length=st.integers(1, 23),
    restriction=st.integers(1, 29),
    causal=st.booleans(),
    kind=st.sampled_from(list(MASKS)),
    seed=st.integers(0, 1000),
)
@example(13, 13, False, "keys", 1)  # One block.
@example(13, 12, False, "pairs", 1)  # Two, of which one is nearly empty.
@example(21, 7, True, "keys", 1)  # Three, all full.
@example(5, 29, True, "none", 1)
@example(19, 1, False, "pairs of a head", 1)  # Each sees itself.
def test_it_is_attention_behind_a_band(length, restriction, causal, kind, seed):
    random = np.random.default_rng(seed)
    query, key, value = qkv(random, length)
    mask, seen = None, band(length, restriction, causal)
    if MASKS[kind]:
        shape = [length if size == "T" else size for size in MASKS[kind]]
        # Some queries are left with nothing.
        mask = random.random(shape) < 0.5
        seen = seen & mask

    attend = functools.partial(
        restricted_attention, query, key, value, restriction, (mask,), causal
    )
    context, _ = attend()
    same, weights = attend(with_weights=True)

    expected, expected_weights = by_definition(query, key, value, seen)
    np.testing.assert_allclose(context, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(same, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_query_with_nothing_to_see_gets_the_mean_in_half_precision(dtype):
    random = np.random.default_rng(5)
    query, key, value = (
        keras.ops.cast(x, dtype) for x in qkv(random, length=11)
    )
    nothing = np.zeros((2, 1, 1, 11), bool)

    asked = query, key, value, 3, (nothing,)
    context, _ = restricted_attention(*asked)

    assert keras.backend.standardize_dtype(context.dtype) == dtype
    mean = np.asarray(keras.ops.cast(value, "float32")).mean(2, keepdims=True)
    found = np.asarray(keras.ops.cast(context, "float32"))
    np.testing.assert_allclose(found, mean + np.zeros(found.shape), atol=0.02)
    _, weights = restricted_attention(*asked, with_weights=True)
    weights = keras.ops.cast(weights, "float32")
    np.testing.assert_allclose(weights, 1 / 11, rtol=0.01)


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "XLA"])
def test_one_graph_serves_every_length_even_none(compiled):
    @tf.function(
        input_signature=[
            *(tf.TensorSpec([None, 3, None, width]) for width in (5, 5, 7)),
            tf.TensorSpec([None, 1, 1, None], tf.bool),
        ],
        autograph=False,
        jit_compile=compiled,
    )
    def graph(query, key, value, mask):
        return restricted_attention(query, key, value, 4, (mask,), True)[0]

    random = np.random.default_rng(7)
    for length in (0, 3, 13):
        inputs = [*qkv(random, length), random.random((2, 1, 1, length)) < 0.5]
        expected, _ = restricted_attention(*inputs[:3], 4, inputs[3:], True)
        np.testing.assert_allclose(graph(*inputs), expected, 1e-5, 1e-6)


def alike(kind, *shapes, **settings):
    """A restricted stack and a whole one with the same random weights."""
    sizes = dict(num_layers=2, ffn_dim=11, dropout=0.0, **SIZES, **settings)
    layers = kind(**sizes, restriction=3), kind(**sizes)
    for layer in layers:
        layer.build(*shapes)
        randomise(layer)
    return layers


@pytest.mark.parametrize(
    "settings",
    # The second are those of imported weights.
    [{}, {"attention_bias": True, "norm_first": True}],
)
def test_encoder_and_decoder_are_the_whole_ones_behind_a_band(settings):
    random = np.random.default_rng(11)
    memory = random.normal(size=(2, 9, 10)).astype("float32")
    target = random.normal(size=(2, 8, 10)).astype("float32")
    padding = (np.arange(9) < [[9], [6]])[:, None, None]

    near, whole = alike(Encoder, memory.shape, **settings)
    seen = padding & band(9, 3, False)
    scored = dict(return_attention_scores=True)
    expected, weights = whole(memory, attention_mask=seen, **scored)
    found = near(memory, attention_mask=padding)
    # Rows that are padding see what the band leaves, and nobody sees them.
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    found, near_weights = near(memory, attention_mask=padding, **scored)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    for one, other in zip(near_weights, weights, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)

    near, whole = alike(Decoder, target.shape, memory.shape, **settings)
    seen = band(8, 3, True)
    expected, own, cross = whole(
        target, memory, seen[None, None], padding, **scored
    )
    causal = masks.causal_mask(8)
    for asked in (dict(self_mask=causal), dict(use_causal_mask=True)):
        found = near(target, memory, memory_mask=padding, **asked)
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
        found, *weights = near(
            target, memory, memory_mask=padding, **asked, **scored
        )
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
        for one, other in zip(sum(weights, []), own + cross, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-6)


def test_another_sequence_is_refused():
    layer = MultiHeadAttention(**SIZES, restriction=2)
    with pytest.raises(ValueError, match="as many keys.* 6 and 4"):
        layer(np.zeros((2, 4, 10)), np.zeros((2, 6, 10)))


def largest_tensor(function, *lengths):
    """Count the numbers of the largest tensor in the graph of ids so long."""
    ids = [tf.TensorSpec([1, length], tf.int32) for length in lengths]
    traced = tf.function(function, autograph=False)
    operations = traced.get_concrete_function(*ids).graph.get_operations()
    shapes = [output.shape for each in operations for output in each.outputs]
    return max(shape.num_elements() or 0 for shape in shapes)


@pytest.mark.parametrize("restriction", [None, 7])
def test_no_tensor_holds_a_number_for_all_pairs(restriction):
    model = make_model(num_layers=1, restriction=restriction)

    def gradient(source, target_in):
        with tf.GradientTape() as tape:
            logits = model((source, target_in))
        stacks = (model.encoder, model.decoder)
        weights = [w for stack in stacks for w in stack.trainable_variables]
        return tape.gradient(logits, weights)

    attention = IdModel(model).attention_ids
    for function, *lengths in (
        (gradient, 997, 5),
        (gradient, 5, 997),
        (attention, 997, 5),
    ):
        largest = largest_tensor(function, *lengths)
        assert (largest < 997 * 997) == bool(restriction)
