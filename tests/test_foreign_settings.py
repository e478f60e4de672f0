"""Settings of imported weights beyond the paper: biases and swish."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from small_models import SOURCE, TARGET, TARGET_IN, make_model

from keras_transformer.config import ModelConfig
from keras_transformer.losses import (
    tied_cross_entropies,
    token_cross_entropies,
)
from keras_transformer.model import Transformer
from keras_transformer.training import estimates

FOREIGN = dict(
    activation="swish",
    norm_epsilon=1e-3,
    attention_bias=True,
    logits_bias=True,
)


@pytest.fixture(scope="module")
def model():
    return make_model(**FOREIGN)


def test_none_of_them_is_on_by_default():
    model = make_model()
    assert not [w.path for w in model.weights if "query_bias" in w.path]
    assert not [w.path for w in model.weights if "embedding/bias" in w.path]
    assert model.encoder.layers[0].feed_forward.activation == "relu"
    assert ModelConfig() == ModelConfig(activation="relu", norm_epsilon=1e-6)


def test_the_model_comes_back_with_them(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    again = tf.keras.models.load_model(path)
    assert again.model_config == model.model_config
    np.testing.assert_array_equal(
        again((SOURCE, TARGET_IN)), model((SOURCE, TARGET_IN))
    )


def test_parameters_are_as_many_as_keras_counts(model):
    assert estimates.parameters(model.model_config) == model.count_params()


def test_every_one_of_them_changes_the_logits(model):
    plain = dict(
        zip(FOREIGN, ("relu", 1e-6, False, False), strict=True),
    )
    logits = model((SOURCE, TARGET_IN)).numpy()
    for name, value in plain.items():
        settings = {**dataclasses.asdict(model.model_config), name: value}
        other = Transformer(**settings)
        for weight in other.weights:
            (same,) = (w for w in model.weights if tail(w) == tail(weight))
            weight.assign(same)
        difference = np.abs(other((SOURCE, TARGET_IN)).numpy() - logits)
        assert difference.max() > 1e-3, name


def tail(weight):
    return weight.path.partition("/")[2]


def test_the_loss_of_a_training_step_sees_the_bias_of_the_logits(model):
    losses, gradients = [], []
    weights = [model.embedding.bias, model.embedding.table]
    for way in ("logits", "factors"):
        with tf.GradientTape() as tape:
            features = model.features((SOURCE, TARGET_IN))
            if way == "logits":
                logits = model.embedding.logits(features)
                loss, _ = token_cross_entropies(TARGET, logits, 0.1)
            else:
                factors = model.embedding.factors(features)
                loss, _ = tied_cross_entropies(TARGET, *factors, 0.1)
            total = tf.reduce_sum(loss)
        losses.append(loss)
        gradients.append(
            [
                tf.convert_to_tensor(gradient)
                for gradient in tape.gradient(
                    total, [weight.value for weight in weights]
                )
            ]
        )
    np.testing.assert_allclose(*losses, rtol=1e-4)
    for one, other in zip(*gradients, strict=True):
        assert np.abs(one).max() > 0.01
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
