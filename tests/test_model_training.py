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
from keras_transformer.model import Transformer
from keras_transformer.optimizers import Adam, TransformerSchedule

INPUTS = (SOURCE, TARGET_IN)
HALF = ["mixed_bfloat16", "mixed_float16"]


def compiled(model, learning_rate=0.01, smoothing=0.0, **options):
    model.compile(
        optimizer=keras.optimizers.Adam(
            learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9
        ),
        loss=SmoothedCrossEntropy(smoothing),
        metrics=[TokenAccuracy(), Perplexity()],
        **options,
    )
    return model


@pytest.mark.stands_for("models that Keras trains and saves")
def test_fit_moves_every_weight_and_a_saved_model_trains_on(tmp_path):
    model = make_model(num_layers=1, positions="learned", dropout=0.1)
    options = dict(smoothing=0.1, jit_compile=False)
    compiled(model, TransformerSchedule(10, 700), **options)
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(INPUTS, TARGET, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert np.any(weight.numpy() != old), weight.path

    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")

    assert type(again) is Transformer
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
    assert again.loss.label_smoothing == 0.1
    assert again.optimizer._learning_rate.warmup_steps == 700
    assert int(again.optimizer.iterations) == 1
    again.train_on_batch(INPUTS, TARGET)
    assert int(again.optimizer.iterations) == 2


def test_the_step_after_loading_is_the_step_without(tmp_path):
    model = make_model(num_layers=1, dropout=0.1)
    loss = SmoothedCrossEntropy(0.1)
    model.compile(Adam(), loss, jit_compile=False, accumulate=2)
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
    compiled(model, smoothing=0.1)
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
