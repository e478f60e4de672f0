"""What `Transformer` can be built from, and what it refuses."""

import keras
import pytest
from small_models import make_model

from keras_transformer.layers import Decoder, EncoderLayer
from keras_transformer.model import Transformer
from keras_transformer.runs.run_config import RunConfig

VOCAB = 23


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_symbolic_call_knows_shape_and_dtype(policy):
    ids = keras.Input((None,), dtype="int32")
    logits = make_model(dtype=policy)((ids, ids))
    assert logits.shape == (None, None, VOCAB)
    assert logits.dtype == "float32"


WIDTHS = [
    ("base", {"d_model": 1024}, (128, 128)),
    ("tiny", {"num_heads": 8}, (16, 16)),
    ("big", {"d_model": 512, "value_dim": 7}, (32, 7)),
    # Its own 16, and d_model / h.
    ("B-dk16", {"d_model": 1024}, (16, 128)),
]


@pytest.mark.parametrize("preset, changes, widths", WIDTHS)
def test_a_changed_preset_has_the_same_heads_in_a_run(preset, changes, widths):
    run = RunConfig.from_preset(preset, corpus="demo", **changes).model
    shape = dict(vocab_size=23, num_layers=1, ffn_dim=11)
    model = Transformer.from_preset(preset, **shape, **changes).model_config
    for found in (run, model):
        assert (found.key_dim, found.value_dim) == widths


@pytest.mark.parametrize("kind", [EncoderLayer, Decoder])
def test_a_layer_shares_its_width_among_its_heads(kind):
    layer = kind(num_heads=5, ffn_dim=11)
    layer.build((None, None, 35))
    found = layer.layers[0] if kind is Decoder else layer
    attention = getattr(found, "attention", None) or found.cross_attention
    assert (attention.key_dim, attention.value_dim) == (7, 7)
    with pytest.raises(ValueError, match="`d_model` to be a multiple of"):
        kind(num_heads=3).build((None, None, 35))


def test_an_unknown_preset_is_refused_with_the_known_ones():
    message = "`preset` to be one of base, A-h1, .* received 'bert'"
    with pytest.raises(ValueError, match=message):
        Transformer.from_preset("bert")
