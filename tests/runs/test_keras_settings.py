"""A run's own configuration decides, whatever Keras was set to."""

import keras
import pytest
from programs import python

import keras_transformer as kt
from keras_transformer.config import UserError

TEXTS = ["two", "three hundred"]


def translations(run_dir):
    return kt.Run(run_dir).translator(average=1).translate(TEXTS)


def test_a_global_policy_or_seed_or_format_does_not_reach_into_a_run(
    small_run, monkeypatch
):
    expected = translations(small_run)
    keras.utils.set_random_seed(7)
    keras.config.set_image_data_format("channels_first")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        translator = kt.Run(small_run).translator(average=1)
        assert translator.translate(TEXTS) == expected
        layers = translator.model._flatten_layers()
        assert {layer.compute_dtype for layer in layers} == {"float32"}
    finally:
        keras.config.set_dtype_policy("float32")
        keras.config.set_image_data_format("channels_last")


def test_another_floatx_is_refused(small_run):
    keras.config.set_floatx("float16")
    try:
        with pytest.raises(UserError, match="float16"):
            translations(small_run)
    finally:
        keras.config.set_floatx("float32")


def test_a_keras_that_is_not_installed_is_one_sentence():
    program = "import keras_transformer as kt; kt.Tokenizer"
    done = python("-c", program, check=False, KERAS_BACKEND="openvino")
    assert "Keras was told, by KERAS_BACKEND" in done.stderr.splitlines()[-1]
