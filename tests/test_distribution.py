import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.distribution import ExactTransformer, make_strategy
from keras_transformer.losses import SmoothedCrossEntropy

SCRIPT = pathlib.Path(__file__).with_name("train_replicas.py")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Weights after 20 steps, for a way of training; each way runs once."""
    folder = tmp_path_factory.mktemp("replicas")
    done = {}

    def run(replicas, accumulate, dropout=0.0):
        way = (replicas, accumulate, dropout)
        if way not in done:
            output = folder / f"{replicas}-{accumulate}-{dropout}.npz"
            subprocess.run(
                [sys.executable, SCRIPT, *map(str, way), output],
                check=True,
                cwd=SCRIPT.parents[1],
                env={"PYTHONPATH": ".", "TF_CPP_MIN_LOG_LEVEL": "3"},
            )
            done[way] = dict(np.load(output))
        return done[way]

    return run


def assert_same_training(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-5)


@pytest.mark.slow
def test_two_replicas_with_unequal_tokens_train_like_one(trained):
    assert_same_training(trained(1, 1), trained(2, 1))


@pytest.mark.slow
def test_four_micro_batches_train_like_one_batch(trained):
    assert_same_training(trained(1, 1), trained(1, 4))


@pytest.mark.slow
def test_micro_batches_on_two_replicas_train_like_one_batch(trained):
    assert_same_training(trained(1, 1), trained(2, 2))


@pytest.mark.slow
def test_the_training_that_is_compared_moves_the_weights(trained):
    losses = trained(1, 1)["losses"]
    assert losses[-5:].mean() < losses[:5].mean() - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("replicas, accumulate", [(2, 1), (1, 4)])
def test_losses_with_dropout_are_finite_and_fall(trained, replicas, accumulate):
    losses = trained(replicas, accumulate, 0.1)["losses"]
    assert np.isfinite(losses).all()
    assert losses[-5:].mean() < losses[:5].mean()


def test_evaluation_weighs_every_token_alike():
    model = ExactTransformer(vocab_size=11, d_model=6, num_heads=2, ffn_dim=7)
    model.compile(loss=SmoothedCrossEntropy(0.1), jit_compile=False)
    random = np.random.default_rng(2)
    batches, losses, hits = [], [], []
    for rows, length in ((2, 3), (5, 7)):
        source, target_in, target = random.integers(4, 11, (3, rows, length))
        target[0, 1:] = 0
        batches.append(((source, target_in), target))
        logits = np.array(model((source, target_in)), "float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        at_target = np.take_along_axis(log_p, target[..., None], -1)[..., 0]
        smoothed = -0.9 * at_target - 0.1 * log_p.mean(-1)
        losses.extend(smoothed[target > 0])
        hits.extend((logits.argmax(-1) == target)[target > 0])
    ids = tf.TensorSpec((None, None), tf.int64)
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=((ids, ids), ids)
    )
    results = model.evaluate(data, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert results["token_accuracy"] == pytest.approx(np.mean(hits))


def test_an_unknown_strategy_is_refused_by_name():
    with pytest.raises(UserError, match="auto, none, mirrored, received tpu"):
        make_strategy("tpu")


def test_accumulate_below_one_is_refused():
    with pytest.raises(ValueError, match="Received: accumulate=0"):
        ExactTransformer(vocab_size=7, d_model=2, num_heads=1, accumulate=0)
