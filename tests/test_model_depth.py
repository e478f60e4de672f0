"""A model whose encoder and decoder are of unequal depth."""

import json

import keras
import numpy as np
import paper
import pytest
from sample_runs import digit_arguments, train_on_digits, write_digits
from small_models import SOURCE, TARGET_IN, make_model, paper_weights, sentence
from test_presets import closed_form

from keras_transformer.config import ModelConfig
from keras_transformer.presets import PRESETS
from keras_transformer.run import Run
from keras_transformer.training import estimates

DEPTHS = dict(encoder_layers=3, decoder_layers=2)


def by_hand(encoder_layers, decoder_layers):
    """Parameters of a base model by the figures of `test_presets.py`."""
    return 18_944_000 + encoder_layers * 3_150_336 + decoder_layers * 4_199_936


@pytest.mark.parametrize(
    "given, expected",
    [
        (dict(num_layers=5), [5, 5]),
        (dict(num_layers=5, encoder_layers=3), [3, 5]),
        (dict(num_layers=5, decoder_layers=2), [5, 2]),
        (DEPTHS, [3, 2]),
    ],
)
def test_what_is_not_said_of_a_stack_is_the_papers_n(given, expected):
    config = ModelConfig(**given)
    assert [config.layers_of(s) for s in ("encoder", "decoder")] == expected


@pytest.mark.parametrize("depths", [(3, 2), (1, 3)])
def test_the_forward_pass_is_the_papers(depths):
    encoder_layers, decoder_layers = depths
    model = make_model(
        encoder_layers=encoder_layers, decoder_layers=decoder_layers
    )
    weights = paper_weights(model)
    assert (len(weights["encoder"]), len(weights["decoder"])) == depths

    logits = np.asarray(model((SOURCE, TARGET_IN), training=False))

    for row in range(len(SOURCE)):
        expected, _ = paper.transformer(
            sentence(SOURCE[row]), sentence(TARGET_IN[row]), weights
        )
        np.testing.assert_allclose(
            logits[row, : len(expected)], expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("depths", [(3, 1), (1, 3)])
def test_the_steps_of_a_search_are_those_of_whole_targets(depths):
    encoder_layers, decoder_layers = depths
    model = make_model(
        encoder_layers=encoder_layers, decoder_layers=decoder_layers
    )
    memory, source_mask = model.encode(SOURCE)
    whole = np.asarray(model.decode(TARGET_IN, memory, source_mask))
    cache = model.empty_cache(len(SOURCE))
    assert len(cache) == decoder_layers
    for position in range(TARGET_IN.shape[1]):
        logits, cache = model.decode_step(
            TARGET_IN[:, position : position + 1],
            position,
            cache,
            model.cross_keys_values(memory),
            source_mask,
        )
        longest = TARGET_IN[:, position] != 0  # Padding is never written.
        np.testing.assert_allclose(
            np.asarray(logits)[longest, 0],
            whole[longest, position],
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize(
    "preset, depths", [("base-6-2", (6, 2)), ("base-12-1", (12, 1))]
)
def test_a_preset_has_as_many_parameters_as_by_hand(preset, depths):
    model = PRESETS[preset].model
    found = [model.layers_of(stack) for stack in ("encoder", "decoder")]
    assert tuple(found) == depths
    assert estimates.parameters(model) == by_hand(*depths)
    # The same figures give base its parameters.
    assert by_hand(6, 6) == closed_form("base")


def test_a_file_of_keras_brings_both_depths_back(tmp_path):
    model = make_model(**DEPTHS)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.model_config == model.model_config
    np.testing.assert_array_equal(
        loaded((SOURCE, TARGET_IN)), model((SOURCE, TARGET_IN))
    )


@pytest.mark.slow
def test_a_training_is_told_both_depths(tmp_path):
    corpus = write_digits(tmp_path, train=101, val=11)
    arguments = digit_arguments(corpus, tmp_path / "run", "--steps", "3")
    arguments += ["--encoder-layers", "2", "--decoder-layers", "1"]

    assert train_on_digits(*arguments) == 0

    config = json.loads((tmp_path / "run" / "config.json").read_text())
    found = [config["model"][f"{s}_layers"] for s in ("encoder", "decoder")]
    assert found == [2, 1]
    translator = Run(tmp_path / "run").translator()
    assert len(translator.model.encoder.layers) == 2
    assert len(translator.model.decoder.layers) == 1
    assert len(translator.translate(["one two"])) == 1
    (seen,) = translator.attention(["one two"], ["eins zwei"])
    assert len(seen.weights) == 1
    explanation = translator.explain("one two")
    assert (len(explanation.encoder), len(explanation.decoder)) == (2, 1)
