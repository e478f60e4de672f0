import keras
import numpy as np
import paper
import pytest

from keras_transformer.losses import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
)

# B 2, T 3, V 5; four real tokens.
TARGET = np.array([[4, 1, 3], [3, 0, 0]], "int32")
REAL = TARGET != 0


def logits_that_prefer(ids):
    return np.eye(5, dtype="float32")[np.array(ids)]


def random_logits(seed, shape=(2, 3, 5)):
    return np.random.default_rng(seed).normal(0, 2, shape).astype("float32")


def test_accuracy_over_batches_weighs_every_token_alike():
    metric = TokenAccuracy()
    metric.update_state(TARGET, logits_that_prefer(TARGET))  # 4 of 4
    one = np.array([[2, 0]])
    metric.update_state(one, logits_that_prefer([[1, 0]]))  # 0 of 1
    np.testing.assert_allclose(metric.result(), 4 / 5, rtol=1e-6)


def test_perplexity_is_the_exponential_of_the_mean_over_batches():
    # Not the mean of the batches' perplexities: 4 tokens, then 11.
    longer = np.array([[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 0, 0]], "int32")
    first, second = random_logits(1), random_logits(2, (1, 13, 5))
    metric = Perplexity()
    metric.update_state(TARGET, first)
    metric.update_state(longer, second)
    nats = np.concatenate(
        [
            paper.cross_entropies(TARGET[REAL], first[REAL]),
            paper.cross_entropies(longer[longer != 0], second[longer != 0]),
        ]
    )
    np.testing.assert_allclose(metric.result(), np.exp(nats.mean()), rtol=1e-6)


def test_sample_weights_weigh_tokens_but_never_padding():
    logits = random_logits(3)
    weights = np.array([[2.0, 0.0, 1.0], [3.0, 9.0, 9.0]])
    nats = paper.cross_entropies(TARGET[REAL], logits[REAL])
    right = np.argmax(logits, axis=-1)[REAL] == TARGET[REAL]
    perplexity, accuracy = Perplexity(), TokenAccuracy()
    perplexity.update_state(TARGET, logits, sample_weight=weights)
    accuracy.update_state(TARGET, logits, sample_weight=weights)
    np.testing.assert_allclose(
        perplexity.result(),
        np.exp(np.average(nats, weights=weights[REAL])),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        accuracy.result(), np.average(right, weights=weights[REAL]), rtol=1e-6
    )


@pytest.mark.parametrize(
    "metric_class, neutral", [(TokenAccuracy, 0.0), (Perplexity, 1.0)]
)
def test_a_batch_of_padding_and_a_reset_leave_nothing(metric_class, neutral):
    metric = metric_class()
    metric.update_state(np.zeros((2, 3), "int32"), random_logits(4))
    assert float(metric.result()) == neutral
    metric.update_state(TARGET, logits_that_prefer(TARGET))
    assert float(metric.result()) != neutral
    metric.reset_state()
    assert float(metric.result()) == neutral


@pytest.mark.parametrize("ignored, share", [(0, 3 / 4), (4, 1), (None, 5 / 6)])
def test_accuracy_counts_all_classes_but_the_ignored_one(ignored, share):
    metric = TokenAccuracy(ignore_class=ignored)
    metric = TokenAccuracy.from_config(metric.get_config())
    wrong = np.where(TARGET == 4, 1, TARGET)
    metric.update_state(TARGET.astype("uint8"), logits_that_prefer(wrong))
    np.testing.assert_allclose(metric.result(), share)


@pytest.mark.parametrize("columns", [(), (1,)])
def test_a_classifiers_labels_of_either_rank_are_weighed_and_counted(columns):
    target = np.array([0, 1, 2, 1, 0], "int32").reshape(5, *columns)
    logits = np.eye(3, dtype="float32")[[0, 1, 1, 1, 2]]
    weights = np.array([1, 1, 1, 0, 0], "float32")
    accuracy = TokenAccuracy(ignore_class=None)
    accuracy.update_state(target, logits, weights)
    assert float(accuracy.result()) == pytest.approx(2 / 3)  # By hand.
    keras_own = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours = SmoothedCrossEntropy(0.0, ignore_class=None)
    found = float(ours(target, logits.reshape(5, *columns, 3), weights))
    assert found == pytest.approx(float(keras_own(target[:3], logits[:3])))
