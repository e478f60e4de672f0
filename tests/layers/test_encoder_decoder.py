import keras
import numpy as np
import paper
import pytest
from small_models import decoder_layer_weights, encoder_layer_weights, randomise

from keras_transformer import masks
from keras_transformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
)

# B 2, S 4, T 6, D 10, H 3, K 5, U 7, inner width 11.
SIZES = dict(num_heads=3, key_dim=5, value_dim=7, ffn_dim=11)
RANDOM = np.random.default_rng(0)
MEMORY = RANDOM.normal(size=(2, 4, 10)).astype("float32")
TARGET = RANDOM.normal(size=(2, 6, 10)).astype("float32")
# The second sentence has 3 tokens.
MEMORY_MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], bool)[:, None, None]
LENGTHS = (4, 3)
CAUSAL = masks.causal_mask(6)
# Settings that only imported weights need.
FOREIGN = dict(
    activation="swish", norm_epsilon=0.25, attention_bias=True, norm_first=True
)
LAYERS = [
    EncoderLayer(**SIZES, dropout=0.3, **FOREIGN),
    DecoderLayer(**SIZES, dropout=0.3, **FOREIGN),
    Encoder(num_layers=2, **SIZES, dropout=0.3, **FOREIGN),
    Decoder(num_layers=2, **SIZES, dropout=0.3, **FOREIGN),
]


def name_of(layer):
    return type(layer).__name__


@pytest.fixture(scope="module")
def encoder():
    layer = Encoder(num_layers=2, **SIZES, dropout=0.0)
    layer.build(MEMORY.shape)
    return randomise(layer)


@pytest.fixture(scope="module")
def decoder():
    layer = Decoder(num_layers=2, **SIZES, dropout=0.0)
    layer.build(TARGET.shape, MEMORY.shape)
    return randomise(layer)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_encoder_layer_is_the_papers(encoder):
    layer = encoder.layers[0]
    output = layer(MEMORY, attention_mask=MEMORY_MASK)
    assert output.shape == (2, 4, 10)
    for row, length in enumerate(LENGTHS):
        expected, _ = paper.encoder_layer(
            MEMORY[row, :length], encoder_layer_weights(layer)
        )
        close(output[row, :length], expected)


def test_encoder_runs_its_layers_in_turn_with_no_norm_at_the_end(encoder):
    output, weights = encoder.call_with_weights(MEMORY, MEMORY_MASK)
    np.testing.assert_array_equal(
        output, encoder(MEMORY, attention_mask=MEMORY_MASK)
    )
    for row, length in enumerate(LENGTHS):
        x = MEMORY[row, :length]
        for layer, of_layer in zip(encoder.layers, weights, strict=True):
            x, expected = paper.encoder_layer(x, encoder_layer_weights(layer))
            close(of_layer[row, :, :length, :length], expected)
        close(output[row, :length], x)


def test_decoder_layer_is_the_papers(decoder):
    layer = decoder.layers[0]
    output = layer(TARGET, MEMORY, self_mask=CAUSAL, memory_mask=MEMORY_MASK)
    assert output.shape == (2, 6, 10)
    for row, length in enumerate(LENGTHS):
        expected, _, _ = paper.decoder_layer(
            TARGET[row], MEMORY[row, :length], decoder_layer_weights(layer)
        )
        close(output[row], expected)


def test_decoder_runs_its_layers_in_turn_with_no_norm_at_the_end(decoder):
    output, own, cross = decoder.call_with_weights(
        TARGET, MEMORY, CAUSAL, MEMORY_MASK
    )
    np.testing.assert_array_equal(
        output,
        decoder(TARGET, MEMORY, self_mask=CAUSAL, memory_mask=MEMORY_MASK),
    )
    for row, length in enumerate(LENGTHS):
        x, memory = TARGET[row], MEMORY[row, :length]
        for i, layer in enumerate(decoder.layers):
            x, own_weights, cross_weights = paper.decoder_layer(
                x, memory, decoder_layer_weights(layer)
            )
            close(own[i][row], own_weights)
            close(cross[i][row, :, :, :length], cross_weights)
        close(output[row], x)


def test_every_sublayer_ends_in_a_norm():
    # With gain 1 and bias 0 the output has mean 0 and variance 1.
    for layer, inputs in (
        (EncoderLayer(**SIZES), (MEMORY,)),
        (DecoderLayer(**SIZES), (TARGET, MEMORY)),
    ):
        output = np.asarray(layer(*inputs))
        np.testing.assert_allclose(output.mean(-1), 0.0, atol=1e-6)
        np.testing.assert_allclose(output.var(-1), 1.0, rtol=1e-3)


def test_steps_of_the_decoder_give_what_the_whole_target_gives(decoder):
    # W = 3 beams of the same target, each reversed or shifted otherwise.
    beams = np.stack([TARGET, TARGET[:, ::-1], np.roll(TARGET, 2, 1)], axis=1)
    cross = [x.cross_attention.keys_values(MEMORY) for x in decoder.layers]
    # (B, H, slots, K) and (B, H, slots, U): three slots a step, one a beam.
    caches = [
        (np.zeros((2, 3, 0, 5), "float32"), np.zeros((2, 3, 0, 7), "float32"))
        for _ in decoder.layers
    ]
    for t in range(6):
        own_slots = np.arange(3)[:, None] == np.arange(3 * t + 3) % 3
        output, caches = decoder.step(
            beams[:, :, t],
            caches,
            cross,
            own_slots[None, None],
            MEMORY_MASK,
            write=lambda old, new: np.concatenate([old, new], axis=2),
        )
        assert output.shape == (2, 3, 10)
        assert caches[1][0].shape == (2, 3, 3 * t + 3, 5)
        assert caches[1][1].shape == (2, 3, 3 * t + 3, 7)
        for beam in range(3):
            whole = decoder(
                beams[:, beam],
                MEMORY,
                self_mask=CAUSAL,
                memory_mask=MEMORY_MASK,
            )
            close(output[:, beam], whole[:, t])


@pytest.mark.parametrize("layer", LAYERS, ids=name_of)
def test_dropout_acts_in_training_only(layer):
    inputs = (TARGET, MEMORY) if "Decoder" in name_of(layer) else (MEMORY,)
    still = layer(*inputs)
    np.testing.assert_array_equal(layer(*inputs, training=False), still)
    first, second = (layer(*inputs, training=True) for _ in range(2))
    assert np.any(np.asarray(first) != np.asarray(second))
    assert np.any(np.asarray(first) != np.asarray(still))


def last_kernels(layer):
    """Each sub-layer's matrix without which its update is zero."""
    ffn = layer.feed_forward.narrow.kernel
    if isinstance(layer, EncoderLayer):
        return [layer.attention.output_kernel, ffn]
    attentions = (layer.self_attention, layer.cross_attention)
    return [*(attention.output_kernel for attention in attentions), ffn]


@pytest.mark.parametrize("alive", [None, 0, 1, 2])
@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
def test_dropout_falls_on_every_update_before_it_is_added(layer_class, alive):
    # An update of zero has nothing to drop, and the residual way stays whole.
    layer = layer_class(**SIZES, dropout=0.5)
    inputs = (TARGET, MEMORY) if layer_class is DecoderLayer else (MEMORY,)
    layer.build(*(x.shape for x in inputs))
    kernels = last_kernels(layer)
    for i, kernel in enumerate(kernels):
        if i != alive:
            kernel.assign(np.zeros(kernel.shape))

    still, training = layer(*inputs), layer(*inputs, training=True)

    # Training normalises by another formula, equal up to rounding.
    dropped = not np.allclose(still, training, atol=1e-4)
    assert dropped == (alive in range(len(kernels)))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("layer_class", [EncoderLayer, DecoderLayer])
def test_layers_compute_in_the_dtype_of_their_policy(layer_class, policy):
    layer = layer_class(**SIZES, dtype=policy)
    inputs = (TARGET, MEMORY) if layer_class is DecoderLayer else (MEMORY,)
    output = layer(*inputs)
    compute = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(output.dtype) == compute
    assert {weight.dtype for weight in layer.trainable_weights} == {"float32"}


@pytest.mark.parametrize("layer", LAYERS, ids=name_of)
def test_layers_come_back_from_their_config(layer):
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    assert again.settings == {
        **SIZES,
        "dropout": 0.3,
        "restriction": None,
        **FOREIGN,
    }


def test_layers_work_in_a_functional_model_that_is_saved(tmp_path):
    source = keras.Input((None, 10))
    target = keras.Input((None, 10))
    memory = Encoder(num_layers=1, **SIZES)(source)
    output = Decoder(num_layers=1, **SIZES)(target, memory)
    output = DecoderLayer(**SIZES)(EncoderLayer(**SIZES)(output), memory)
    model = randomise(keras.Model([source, target], output))

    model.save(tmp_path / "functional.keras")
    again = keras.models.load_model(tmp_path / "functional.keras")

    np.testing.assert_array_equal(
        again([MEMORY, TARGET]), model([MEMORY, TARGET])
    )


@pytest.mark.parametrize("layer", LAYERS, ids=name_of)
@pytest.mark.parametrize(
    "name, value",
    [("num_heads", 0), ("dropout", 1.0), ("activation", "gelo")],
)
def test_layers_refuse_what_makes_no_sense(layer, name, value):
    with pytest.raises(ValueError, match=f"Expected `{name}` to be "):
        type(layer)(**{**layer.get_config(), name: value})


@pytest.mark.parametrize("layer_class", [Encoder, Decoder])
def test_stacks_refuse_fewer_than_one_layer(layer_class):
    with pytest.raises(ValueError, match="`num_layers` to be at least 1"):
        layer_class(num_layers=0, **SIZES)
