"""What `Transformer` can be built from, and what it refuses."""

import keras
import pytest
from small import SIZES, make_model

from keras_transformer.model import Transformer

VOCAB = 23


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_symbolic_call_knows_shape_and_dtype(policy):
    ids = keras.Input((None,), dtype="int32")
    logits = make_model(dtype=policy)((ids, ids))
    assert logits.shape == (None, None, VOCAB)
    assert logits.dtype == "float32"


def test_head_widths_are_an_even_share_unless_given():
    model = Transformer(vocab_size=23, num_layers=1, d_model=12, num_heads=3)
    assert model.model_config.key_dim == 4
    assert model.model_config.value_dim == 4
    given = Transformer(
        vocab_size=23, num_layers=1, d_model=12, num_heads=3, value_dim=7
    )
    assert given.model_config.key_dim == 4
    assert given.model_config.value_dim == 7


@pytest.mark.parametrize("value_dim", [None, 7])
def test_a_width_that_heads_cannot_share_is_refused(value_dim):
    message = (
        "`d_model` must be divisible by `num_heads` unless `key_dim` is "
        "given. Received: d_model=10, num_heads=3"
    )
    with pytest.raises(ValueError, match=message):
        Transformer(vocab_size=23, d_model=10, num_heads=3, value_dim=value_dim)


BELOW_1 = "`{name}` must be at least 1. Received: {name}={value}"
OUTSIDE = r"`{name}` must be in \[0, 1\). Received: {name}={value}"
PAIRS = "`d_model` must be even and at least 2.* Received: d_model={value}"
ABOVE_0 = "`{name}` must be above 0. Received: {name}={value}"
ACTIVATION = (
    "`activation` must be the name of one of Keras's. Received: .*={value!r}"
)
KIND = (
    '`positions` must be "sinusoidal", "learned" or "tensor2tensor". '
    "Received: .*={value!r}"
)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("vocab_size", 0, BELOW_1),
        ("num_layers", 0, BELOW_1),
        ("num_heads", 0, BELOW_1),
        ("key_dim", 0, BELOW_1),
        ("value_dim", -7, BELOW_1),
        ("ffn_dim", 0, BELOW_1),
        ("max_positions", 0, BELOW_1),
        ("dropout", -0.1, OUTSIDE),
        ("dropout", 1.0, OUTSIDE),
        ("d_model", 7, PAIRS),
        ("positions", "rotary", KIND),
        ("restriction", 0, "`{name}` must be None or at least 1. .*={value}"),
        ("first_position", -1, "`{name}` must be at least 0. .*={value}"),
        ("activation", "gelo", ACTIVATION),
        ("norm_epsilon", -1e-6, ABOVE_0),
        ("norm_epsilon", 0.0, ABOVE_0),
        ("norm_epsilon", float("nan"), ABOVE_0),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_at_construction(
    name, value, message
):
    with pytest.raises(
        ValueError, match=message.format(name=name, value=value)
    ):
        Transformer(**{**SIZES, name: value})


def test_a_preset_takes_other_arguments_in_place_of_its_own():
    model = Transformer.from_preset(
        "tiny", vocab_size=VOCAB, num_layers=1, name="small"
    )
    config = model.model_config
    assert (config.vocab_size, config.num_layers, config.ffn_dim) == (
        23,
        1,
        256,
    )
    assert model.name == "small"


def test_an_unknown_preset_is_refused_with_the_known_ones():
    message = "`preset` must be one of base, A-h1, .* Received: preset='bert'"
    with pytest.raises(ValueError, match=message):
        Transformer.from_preset("bert")
