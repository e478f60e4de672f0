"""The moving average of the weights: its shares, and lending it."""

import keras
import numpy as np
import pytest
from sample_runs import fit_tiny_model, make_tiny_model

from keras_transformer.training.callbacks import MovingAverage


@pytest.mark.parametrize("sessions", [(5,), (2, 3)])
def test_shares_of_the_moving_average_fall_by_its_factor(sessions):
    model = make_tiny_model(seed=1)
    average = MovingAverage(model, 0.7)
    trained = []
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: trained.append(
            model.get_weights()
        )
    )
    for steps in sessions:
        before = [variable.numpy() for variable in average.variables]
        average = MovingAverage(model, 0.7)  # As from a checkpoint.
        for variable, value in zip(average.variables, before, strict=True):
            variable.assign(value)
        fit_tiny_model(model, steps, callbacks=[average, keep])
    # The weights before the first update have no share.
    shares = np.array([0.7**4, 0.7**3, 0.7**2, 0.7, 1.0])
    shares /= shares.sum()
    for i, variable in enumerate(average.variables):
        steps = np.stack([weights[i] for weights in trained])
        expected = np.tensordot(shares, steps.astype("float64"), 1)
        np.testing.assert_allclose(variable, expected, atol=1e-6)
    moved = trained[-1][0] - average.variables[0].numpy()
    assert np.abs(moved).max() > 1e-3


def test_the_moving_average_is_lent_and_the_weights_come_back():
    # Before `fit`, as when a session resumes with a validation.
    model = make_tiny_model(seed=1)
    average = MovingAverage(model, 0.7)
    other = make_tiny_model(seed=2).get_weights()
    for variable, weight in zip(average.variables, other, strict=True):
        variable.assign(weight)
    before = model.get_weights()
    with pytest.raises(KeyboardInterrupt), average.in_use():
        np.testing.assert_equal(model.get_weights(), other)
        raise KeyboardInterrupt
    np.testing.assert_equal(model.get_weights(), before)
