import pytest
from other_backends import assert_computes_alike
from programs import python

pytestmark = pytest.mark.slow


def test_the_model_wing_computes_alike_without_tensorflow(tmp_path):
    assert_computes_alike("jax", tmp_path)


def test_a_training_on_jax_is_refused_before_it_writes(corpus, tmp_path):
    run_dir = tmp_path / "run"
    words = ("train", "--corpus", corpus, "--run-dir", run_dir)
    words = ("-m", "keras_transformer", *words)
    done = python(*words, check=False, KERAS_BACKEND="jax")
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: ") and "backend" in error
    assert not run_dir.exists()


def test_a_search_on_jax_is_refused_in_a_sentence():
    program = (
        "import keras_transformer as kt\n"
        "from keras_transformer.decoding.id_model import IdModel\n"
        "IdModel(kt.Transformer(23, num_layers=1, d_model=10, num_heads=2))"
    )
    done = python("-c", program, check=False, KERAS_BACKEND="jax")
    assert "Keras's backend tensorflow" in done.stderr.splitlines()[-1]
