"""Training in float16 skips an update that overflows, and goes on."""

import fit_replicas
import numpy as np
import pytest
import tensorflow as tf
from programs import run_program

from keras_transformer.runs import checkpoints

WAYS = [
    "plain",
    pytest.param("accumulated", marks=pytest.mark.slow),
    pytest.param("replicas", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=WAYS)
def steps(request, tmp_path_factory):
    """The state before and after each step, for a way of training."""
    if request.param != "replicas":
        strategy = tf.distribute.get_strategy()
        count = 1 + (request.param == "accumulated")
        return fit_replicas.record_scaled(strategy, accumulate=count)
    folder = tmp_path_factory.mktemp("scaled")
    run_program("fit_replicas.py", folder, "mirrored", "in float16")
    return dict(np.load(folder / "in float16.npz"))


def skipped(steps):
    """The steps that left the count of updates as it was."""
    return np.diff(steps["updates"]) == 0


def test_an_overflow_halves_the_scale_and_changes_nothing_else(steps):
    skips = skipped(steps)
    # float16 ends at 2^16; the gradient of a mean loss is not above 1.
    assert skips[:20].all() and not skips.all()
    for i in np.flatnonzero(skips):
        assert not np.isfinite(steps["norm"][i + 1])
        assert steps["scale"][i + 1] == steps["scale"][i] / 2
        for name in ("weights", "moments", "rate"):
            np.testing.assert_array_equal(steps[name][i], steps[name][i + 1])


def test_training_goes_on_after_the_overflows(steps):
    went_on = np.flatnonzero(~skipped(steps)) + 1
    assert went_on.size > 20
    assert np.isfinite(steps["norm"][went_on]).all()
    for name in ("loss", "weights", "moments"):
        assert np.isfinite(steps[name]).all()
    losses = steps["loss"][went_on]
    assert losses[-5:].mean() < losses[:5].mean() - 0.2
    # The norm is that of the gradient itself, not of the scaled one.
    assert (steps["norm"][went_on] < 10).all()


def test_the_learning_rate_counts_updates_not_steps(steps):
    for updates, rate in zip(steps["updates"], steps["rate"], strict=True):
        step = updates + 1  # Keras shows the rate of the next update.
        expected = 14**-0.5 * min(step**-0.5, step * 11**-1.5)
        assert rate == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_checkpoint_holds_the_scale(tmp_path):
    model, data = fit_replicas.make_scaled(1, start=2.0**30)
    model.fit(data.take(3), verbose=0, shuffle=False)
    checkpoints.save_checkpoint(tmp_path, model, checkpoints.Progress(3))
    restored, _ = fit_replicas.make_scaled(1)
    checkpoints.restore_checkpoint(tmp_path, restored)
    assert float(restored.optimizer.dynamic_scale) == 2.0**27
    for one in (model, restored):
        one.fit(data.skip(3).take(17), verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) > 3
    found, expected = (
        [np.array(x) for x in (*each.variables, *each.optimizer.variables)]
        for each in (restored, model)
    )
    np.testing.assert_equal(found, expected)
