"""The exact step: what it weighs, and what others do with it."""

import dataclasses

import keras
import numpy as np
import paper
import pytest
import sample_runs
import tensorflow as tf
from small_models import randomise

from keras_transformer.losses import SmoothedCrossEntropy, TokenAccuracy
from keras_transformer.model import Transformer

SIZES = dict(num_layers=1, d_model=6, num_heads=2, ffn_dim=7)


def test_evaluation_weighs_every_token_alike():
    model = Transformer(11, **SIZES)
    model.compile(loss=SmoothedCrossEntropy(0.1), jit_compile=False)
    random = np.random.default_rng(2)
    batches, losses, hits = [], [], []
    for rows, length in ((2, 3), (5, 7)):
        source, target_in, target = random.integers(4, 11, (3, rows, length))
        target[0, 1:] = 0
        batches.append(((source, target_in), target))
        logits = np.array(model((source, target_in)))[target > 0]
        target = target[target > 0]
        losses.extend(paper.cross_entropies(target, logits, 0.1))
        hits.extend(logits.argmax(-1) == target)
    ids = tf.TensorSpec((None, None), tf.int64)
    data = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=((ids, ids), ids)
    )
    results = model.evaluate(data, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert results["token_accuracy"] == pytest.approx(np.mean(hits))


def test_perplexity_and_loss_of_an_epoch_cover_the_same_tokens():
    model = Transformer(11, **SIZES, dropout=0.0)
    loss = SmoothedCrossEntropy(0.0)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
    ids = np.random.default_rng(2).integers(4, 11, (5, 7))
    ids[3:, 1:] = 0
    logs = model.fit((ids, ids), ids, batch_size=3, verbose=0).history
    for each in ("", "batch_"):
        assert logs[f"{each}perplexity"][0] == pytest.approx(
            np.exp(logs[f"{each}loss"][0]), rel=1e-5
        )
    assert logs["perplexity"] != pytest.approx(logs["batch_perplexity"])


class WithOwnCall(Transformer):
    def call(self, inputs, training=False):
        return super().call(inputs, training) * 0


class Penalised(Transformer):
    def features(self, inputs, training=False):
        self.add_loss(0.25 * tf.reduce_sum(self.embedding.table**2))
        return super().features(inputs, training)


class Measured(Transformer):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {}


class WithoutSource(Transformer):
    def features(self, inputs, training=False):
        return self._embed("target", inputs[1])


def step_of(kind, **options):
    """A model after a step, and the step's figures."""
    model = randomise(kind(11, **SIZES, dropout=0.0))
    kernel = model.encoder.layers[0].feed_forward.widen.kernel
    if kind is Penalised:
        kernel.regularizer = keras.regularizers.L2(0.5)
    before = np.array(model.embedding.table), np.array(kernel)
    sgd = keras.optimizers.SGD(0.5)
    model.compile(sgd, SmoothedCrossEntropy(0.1), jit_compile=False, **options)
    x = np.array([[5, 3], [4, 3]]), np.array([[2, 6, 8], [2, 9, 7]])
    y = np.array([[6, 8, 3], [9, 7, 3]])
    evaluated = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    logs = model.fit(x, y, verbose=0).history
    after = np.array(model.embedding.table), np.array(kernel)
    return logs, evaluated, before, after


def test_a_call_of_ones_own_is_trained():
    logs, evaluated, *_ = step_of(WithOwnCall)
    # All of 11 tokens are alike.
    assert logs["perplexity"] == pytest.approx([11])
    assert logs["loss"] == pytest.approx([np.log(11)])
    assert evaluated == pytest.approx(np.log(11))


def test_penalties_count_in_loss_and_step():
    plain, of_plain, (table, kernel), ends = step_of(Transformer)
    penalty = 0.25 * (table**2).sum() + 0.5 * (kernel**2).sum()
    for accumulate in (1, 2):
        logs, evaluated, _, found = step_of(Penalised, accumulate=accumulate)
        assert logs["loss"][0] == pytest.approx(plain["loss"][0] + penalty)
        assert evaluated == pytest.approx(of_plain + penalty)
        assert logs["perplexity"] == pytest.approx(plain["perplexity"])
        # The rate is 0.5, the gradients of the penalties 0.5 table and kernel.
        close = dict(rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[0], ends[0] - 0.25 * table, **close)
        np.testing.assert_allclose(found[1], ends[1] - 0.5 * kernel, **close)


def test_a_weight_without_gradient_stays():
    _, _, (table, kernel), ends = step_of(WithoutSource)
    np.testing.assert_array_equal(ends[1], kernel)
    assert np.abs(ends[0] - table).max() > 1e-3


@pytest.mark.stands_for("steps with metrics")
def test_metrics_change_no_weight_and_take_no_accumulation():
    found = []
    for metrics in ([], [TokenAccuracy()]):
        model = sample_runs.make_tiny_model(seed=3)
        loss = SmoothedCrossEntropy(0.1)
        model.compile("adam", loss, metrics=metrics, jit_compile=False)
        keras.utils.set_random_seed(7)
        sample_runs.fit_tiny_model(model, 3)
        found.append(model.get_weights())
    for bare, measured in zip(*found, strict=True):
        np.testing.assert_allclose(bare, measured, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="`accumulate`"):
        model.compile("adam", loss, metrics=metrics, accumulate=2)
    with pytest.raises(ValueError, match="`accumulate`.*`compute_metrics`"):
        own = Measured(**dataclasses.asdict(sample_runs.TINY))
        own.compile("adam", loss, accumulate=2)
    for wrong in (0, 1.5, "2"):
        with pytest.raises(ValueError, match="`accumulate`"):
            model.compile("adam", loss, accumulate=wrong)
