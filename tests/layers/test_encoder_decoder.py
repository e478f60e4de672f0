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
