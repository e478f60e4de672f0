import os
import subprocess
import sys

import numpy as np
import pytest
from project_table import ROOT
from small_models import model_wing_model, model_wing_results

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "support" / "run_on_jax.py"


@pytest.fixture(scope="module")
def weights():
    return {
        weight.path: weight.numpy() for weight in model_wing_model().weights
    }


@pytest.fixture(scope="module")
def on_jax(weights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("jax")
    np.savez(folder / "weights.npz", **weights)
    subprocess.run(
        [sys.executable, PROGRAM, folder / "weights.npz", folder / "out.npz"],
        check=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": "."},
    )
    return dict(np.load(folder / "out.npz"))


@pytest.fixture(scope="module")
def on_tensorflow(weights):
    return model_wing_results(weights)


def test_the_model_wing_runs_on_jax_where_tensorflow_cannot_be_imported(on_jax):
    assert on_jax["backend"] == "jax"
    assert not on_jax["tensorflow"]


def test_a_training_on_jax_is_refused_before_it_writes(corpus, tmp_path):
    run_dir = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "keras_transformer", "train"]
        + ["--corpus", corpus, "--run-dir", run_dir],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: Expected Keras to have the backend tensor")
    assert not run_dir.exists()


@pytest.mark.parametrize(
    "name", ["logits", "steps", "restricted", "masked", "tied_losses"]
)
def test_jax_gives_the_same_numbers(on_jax, on_tensorflow, name):
    np.testing.assert_allclose(
        on_jax[name], on_tensorflow[name], rtol=1e-5, atol=1e-5
    )


def test_a_training_step_on_jax_is_the_same(on_jax, on_tensorflow, weights):
    for name in ("loss", "token_accuracy", "perplexity"):
        np.testing.assert_allclose(on_jax[name], on_tensorflow[name], rtol=1e-5)
    for path, before in weights.items():
        after = on_tensorflow[path]
        np.testing.assert_allclose(on_jax[path], after, 1e-4, 1e-5, path)
        assert np.any(np.abs(after - before) > 1e-3), path
