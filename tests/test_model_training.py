"""`Transformer` in Keras's own compile, fit, evaluate, predict and saving."""

import keras
import numpy as np
import pytest
from small_models import SOURCE, TARGET, TARGET_IN, make_model

from keras_transformer.losses import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
)
from keras_transformer.optimizers import Adam, TransformerSchedule

INPUTS = (SOURCE, TARGET_IN)
HALF = ["mixed_bfloat16", "mixed_float16"]


def compiled(model, **options):
    metrics = [TokenAccuracy(), Perplexity()]
    loss = SmoothedCrossEntropy(0.1)
    model.compile(Adam(0.01), loss, metrics=metrics, **options)
    return model


@pytest.mark.stands_for("models that Keras trains")
def test_fit_moves_every_weight():
    model = make_model(num_layers=1, positions="learned", dropout=0.1)
    compiled(model, jit_compile=False)
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(INPUTS, TARGET, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(weight.numpy() != old), weight.path


@pytest.mark.stands_for("models that Keras saves")
def test_the_step_after_loading_is_the_step_without(tmp_path):
    model = make_model(num_layers=1, dropout=0.1)
    loss = SmoothedCrossEntropy(0.1)
    adam = Adam(TransformerSchedule(10, 700))
    model.compile(adam, loss, jit_compile=False, accumulate=2)
    model.fit(INPUTS, TARGET, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    steps = [
        each.train_on_batch(INPUTS, TARGET, return_dict=True)
        for each in (model, again)
    ]
    assert again.get_compile_config()["jit_compile"] is False
    assert "gradient_norm" in steps[0]
    assert steps[0]["batch_loss"] == steps[1]["batch_loss"]
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other, one.path)


@pytest.mark.parametrize("policy", HALF)
def test_half_precision_trains_with_finite_numbers(policy):
    model = make_model(num_layers=1, dtype=policy, dropout=0.1)
    compiled(model)
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (policy == "mixed_float16")

    history = model.fit(INPUTS, TARGET, epochs=2, verbose=0)

    assert np.all(np.isfinite(history.history["loss"]))
    for weight in model.trainable_weights:
        assert weight.dtype == "float32"
        assert np.all(np.isfinite(weight.numpy())), weight.path


def test_metrics_of_an_earlier_compile_are_forgotten():
    model = make_model()
    loss = SmoothedCrossEntropy()
    model.compile("sgd", loss, metrics=[TokenAccuracy("mine")])
    data = INPUTS, TARGET
    assert "mine" in model.evaluate(*data, verbose=0, return_dict=True)
    model.compile("sgd", loss)
    found = model.evaluate(*data, verbose=0, return_dict=True)
    assert set(found) == {"loss", "token_accuracy", "perplexity"}
