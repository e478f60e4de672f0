"""The model wing on PyTorch, where TensorFlow cannot be imported.

`make test-torch` runs this in an environment that has both.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from small_models import TARGET_IN

ROOT = pathlib.Path(__file__).parents[1]
PROGRAM = pathlib.Path(__file__).with_name("run_model_wing.py")


def run(backend, folder):
    subprocess.run(
        [sys.executable, PROGRAM, folder],
        check=True,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/support'}",
        },
    )
    return dict(np.load(folder / "results.npz"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("torch")


@pytest.fixture(scope="module")
def on_torch(folder):
    return run("torch", folder)


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory):
    return run("tensorflow", tmp_path_factory.mktemp("tensorflow"))


def test_the_model_wing_runs_where_tensorflow_cannot_be_imported(on_torch):
    assert on_torch["backend"] == "torch"
    assert not on_torch["tensorflow"]


def test_both_start_with_the_same_weights(on_torch, on_tensorflow):
    names = [name for name in on_torch if name.startswith("before/")]
    assert len(names) > 20
    for name in names:
        np.testing.assert_array_equal(on_torch[name], on_tensorflow[name])


@pytest.mark.parametrize("name", ["logits", "logits_learned", "steps"])
def test_the_logits_are_the_same(on_torch, on_tensorflow, name):
    np.testing.assert_allclose(
        on_torch[name], on_tensorflow[name], rtol=1e-5, atol=1e-5
    )


def test_logits_of_half_precision_are_near_the_exact_ones(on_torch):
    found, exact = on_torch["logits_bfloat16"], on_torch["logits"]
    assert np.isfinite(found).all()
    assert 0 < np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["tied_losses", "tied_features", "tied_table"])
def test_the_tied_loss_and_its_gradients_are_the_same(
    on_torch, on_tensorflow, name
):
    np.testing.assert_allclose(
        on_torch[name], on_tensorflow[name], rtol=1e-5, atol=1e-5
    )


def test_a_training_step_is_the_same(on_torch, on_tensorflow):
    for name in ("loss", "token_accuracy", "perplexity"):
        np.testing.assert_allclose(
            on_torch[name], on_tensorflow[name], rtol=1e-5
        )
    for name, before in on_torch.items():
        if name.startswith("before/"):
            name = name.replace("before/", "after/")
            after = on_torch[name]
            np.testing.assert_allclose(
                after, on_tensorflow[name], 1e-4, 1e-5, name
            )
            assert np.any(np.abs(after - before) > 1e-3), name


def test_it_learns_with_dropout(on_torch):
    found = on_torch["training"]
    assert np.isfinite(found).all()
    assert found[-5:].mean() < found[:5].mean() - 0.5


def test_a_model_saved_on_torch_loads_on_tensorflow(folder, on_torch):
    program = (
        "import sys, keras, numpy as np, keras_transformer.model\n"
        "from small_models import SOURCE, TARGET_IN\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "assert keras.backend.backend() == 'tensorflow'\n"
        "np.save(sys.argv[2], model((SOURCE, TARGET_IN)))"
    )
    subprocess.run(
        [
            *(sys.executable, "-c", program),
            *(folder / "model.keras", folder / "loaded.npy"),
        ],
        check=True,
        env={
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/support'}",
        },
    )
    assert on_torch["logits_saved"].shape[:2] == TARGET_IN.shape
    np.testing.assert_allclose(
        np.load(folder / "loaded.npy"),
        on_torch["logits_saved"],
        rtol=1e-5,
        atol=1e-5,
    )
