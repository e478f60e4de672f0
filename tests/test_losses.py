import keras
import numpy as np
import paper
import pytest
import tensorflow as tf

from keras_transformer.losses import (
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
    tied_cross_entropies,
)

# B 3, T 5, V 7, N = 8 real tokens in rows of unequal length.
TARGET = np.array([[4, 6, 5, 1, 3], [5, 3, 0, 0, 0], [3, 0, 0, 0, 0]], "int32")
REAL = TARGET != 0
LOGITS = np.random.default_rng(1).normal(0, 2, (3, 5, 7)).astype("float32")
SMOOTHINGS = [0.0, 0.1, 0.7]
MODES = pytest.mark.parametrize("mode", [{}, {"jit_compile": True}])


def close(actual, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol, atol)


def gradient(loss, target, logits, factor=1.0, **options):
    """The derivative of `factor * loss` by the logits."""

    @tf.function(autograph=False, **options)
    def of(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = factor * loss(target, logits)
        return tape.gradient(value, logits)

    return of(tf.constant(logits)).numpy()


def slopes_of(logits, smoothing):
    """Softmax minus the reference at every real token."""
    reference = [paper.smoothed_distribution(x, 7, smoothing) for x in TARGET]
    return (paper.softmax(logits) - np.array(reference)) * REAL[..., None]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_loss_is_the_cross_entropy_with_the_whole_smoothed_distribution(
    smoothing,
):
    nats = paper.cross_entropies(TARGET[REAL], LOGITS[REAL], smoothing)
    loss = SmoothedCrossEntropy(smoothing)(TARGET, LOGITS)
    close(loss, nats.sum() / 8, 1e-6)


@MODES
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_gradient_is_softmax_minus_reference_per_token(smoothing, mode):
    loss = SmoothedCrossEntropy(smoothing)
    # It follows what comes from above.
    found = gradient(loss, TARGET, LOGITS, factor=-3.0, **mode)
    close(found, -3 * slopes_of(LOGITS.astype("float64"), smoothing) / 8)


def test_a_batch_of_nothing_but_padding_or_no_weights_costs_nothing():
    nothing = np.zeros((3, 5), "int32")
    loss = SmoothedCrossEntropy(0.1)
    assert float(loss(TARGET, LOGITS, sample_weight=nothing)) == 0.0
    assert float(loss(nothing, LOGITS)) == 0.0
    assert not gradient(loss, nothing, LOGITS).any()


OF_TOKENS = [[1, 2, 0, 0.5, 3], [5, 7, 11, 13, 17], [0.25, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    "weights, of_real_tokens",
    [
        (OF_TOKENS, [1, 2, 0, 0.5, 3, 5, 7, 0.25]),
        # One for each row weighs all its tokens.
        ([2, 3, 0], [2, 2, 2, 2, 2, 3, 3, 0]),
    ],
)
def test_loss_with_weights_is_the_weighted_mean(weights, of_real_tokens):
    weights = np.array(weights, "float32")
    nats = paper.cross_entropies(TARGET[REAL], LOGITS[REAL], 0.1)
    loss = SmoothedCrossEntropy(0.1)(TARGET, LOGITS, sample_weight=weights)
    close(loss, np.average(nats, weights=of_real_tokens), 1e-6)


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_logits_cost_a_finite_number(size):
    # All of the probability on token 1 of 4.
    logits = np.array([[[0.0, size, 0.0, 0.0]] * 2], "float32")
    target = np.array([[1, 2]])
    loss = SmoothedCrossEntropy(0.0)
    # 0 nats for the right token, `size` for the wrong one.
    close(loss(target, logits), size / 2, 1e-6)
    # Smoothing by s adds s * (size - size / 4) and takes s * size.
    smoothed = SmoothedCrossEntropy(0.2)(target, logits)
    close(smoothed, (size + 0.2 * (2 * size * 3 / 4 - size)) / 2)
    slopes = gradient(loss, target, logits)
    close(slopes, [[[0, 0, 0, 0], [0, 0.5, -0.5, 0]]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_used_in_float32(dtype):
    # 4,099 equal logits: in float16 the sum of exponentials sticks at 2,048.
    logits = keras.ops.zeros((1, 1, 4_099), dtype=dtype)
    loss = SmoothedCrossEntropy(0.1)(np.array([[5]]), logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    close(loss, np.log(4_099), 1e-6)


FEATURES = np.random.default_rng(11).normal(size=(3, 5, 11))
TABLE = np.random.default_rng(12).normal(size=(7, 11))


def tied(smoothing, dtype="float32", factor=1.0, **options):
    """Both losses, and the gradients of the weighted first one."""

    @tf.function(autograph=False, **options)
    def of(features, table):
        with tf.GradientTape() as tape:
            tape.watch([features, table])
            smoothed, plain = tied_cross_entropies(
                TARGET, features, table, smoothing
            )
            real = tf.where(REAL, tf.cast(smoothed, tf.float32), 0.0)
            total = factor * tf.reduce_sum(real)
        return smoothed, plain, *tape.gradient(total, [features, table])

    found = of(tf.constant(FEATURES, dtype), tf.constant(TABLE, tf.float32))
    return [x.numpy() for x in found]


@MODES
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_tied_losses_and_gradients_follow_the_equations(smoothing, mode):
    logits = FEATURES @ TABLE.T
    slopes = -3 * slopes_of(logits, smoothing)
    smoothed, plain, *gradients = tied(smoothing, factor=-3.0, **mode)
    for ours, by_hand in ((smoothed, smoothing), (plain, 0.0)):
        nats = paper.cross_entropies(TARGET[REAL], logits[REAL], by_hand)
        close(ours[REAL], nats)
    close(gradients[0], slopes @ TABLE, atol=1e-5)
    by_table = np.einsum("btv,btd->vd", slopes, FEATURES)
    close(gradients[1], by_table, atol=1e-5)


def test_tied_losses_of_half_precision_features_are_float32():
    smoothed, plain, to_features, to_table = tied(0.1, "float16")
    assert smoothed.dtype == plain.dtype == to_table.dtype == "float32"
    assert to_features.dtype == "float16"
    logits = FEATURES @ TABLE.T
    nats = paper.cross_entropies(TARGET[REAL], logits[REAL], 0.1)
    close(smoothed[REAL], nats, 1e-2, 1e-2)


def test_a_hopeless_token_costs_87_nats_and_can_still_be_learnt():
    table = tf.eye(7, 11)
    features = -300.0 * table[:5][None] + tf.zeros((3, 1, 1))
    target = tf.constant([[0, 1, 2, 3, 4]] * 3)
    with tf.GradientTape() as tape:
        tape.watch(features)
        _, plain = tied_cross_entropies(target, features, table)
        smoothed, _ = tied_cross_entropies(target, features, table)
    close(plain, 87.3, atol=0.1)
    close(tape.gradient(smoothed, features)[0, 2, 2], -1.0)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "none"])
@pytest.mark.parametrize("ignored", [0, 3, None])
def test_ignored_class_and_reduction_are_as_in_keras(ignored, reduction):
    arguments = dict(ignore_class=ignored, reduction=reduction)
    theirs = keras.losses.SparseCategoricalCrossentropy(True, **arguments)
    ours = SmoothedCrossEntropy(0.0, **arguments)
    again = SmoothedCrossEntropy.from_config(ours.get_config())
    for target in (TARGET, TARGET.astype("uint8")):
        close(again(target, LOGITS), theirs(target, LOGITS))
    mean = SmoothedCrossEntropy(0.0, ignore_class=ignored)(TARGET, LOGITS)
    real = TARGET != (-1 if ignored is None else ignored)
    nats = paper.cross_entropies(TARGET[real], LOGITS[real], 0.0)
    close(mean, nats.mean())


# B 2, T 3, V 5; four real tokens.
SHORT = np.array([[4, 1, 3], [3, 0, 0]], "int32")
KEPT = SHORT != 0


def logits_that_prefer(ids):
    return np.eye(5, dtype="float32")[np.array(ids)]


def random_logits(seed, shape=(2, 3, 5)):
    return np.random.default_rng(seed).normal(0, 2, shape).astype("float32")


def test_accuracy_over_batches_weighs_every_token_alike():
    metric = TokenAccuracy()
    metric.update_state(SHORT, logits_that_prefer(SHORT))  # 4 of 4
    one = np.array([[2, 0]])
    metric.update_state(one, logits_that_prefer([[1, 0]]))  # 0 of 1
    close(metric.result(), 4 / 5)


def test_perplexity_is_the_exponential_of_the_mean_over_batches():
    # Not the mean of the batches' perplexities: 4 tokens, then 11.
    longer = np.array([[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 0, 0]], "int32")
    metric, nats = Perplexity(), []
    for seed, target in enumerate((SHORT, longer)):
        logits, kept = random_logits(seed, (*target.shape, 5)), target != 0
        metric.update_state(target, logits)
        nats.extend(paper.cross_entropies(target[kept], logits[kept]))
    close(metric.result(), np.exp(np.mean(nats)))


def test_sample_weights_weigh_tokens_but_never_padding():
    logits = random_logits(3)
    weights = np.array([[2.0, 0.0, 1.0], [3.0, 9.0, 9.0]])
    nats = paper.cross_entropies(SHORT[KEPT], logits[KEPT])
    right = np.argmax(logits, axis=-1)[KEPT] == SHORT[KEPT]
    perplexity, accuracy = Perplexity(), TokenAccuracy()
    perplexity.update_state(SHORT, logits, sample_weight=weights)
    accuracy.update_state(SHORT, logits, sample_weight=weights)
    mean_nats, mean_right = (
        np.average(of_token, weights=weights[KEPT])
        for of_token in (nats, right)
    )
    close(perplexity.result(), np.exp(mean_nats))
    close(accuracy.result(), mean_right)


@pytest.mark.parametrize("kind, neutral", [(TokenAccuracy, 0), (Perplexity, 1)])
def test_a_batch_of_padding_and_a_reset_leave_nothing(kind, neutral):
    metric = kind()
    metric.update_state(np.zeros((3, 5), "int32"), LOGITS)
    assert float(metric.result()) == neutral
    metric.update_state(np.argmax(LOGITS, -1), LOGITS)
    assert float(metric.result()) != neutral
    metric.reset_state()
    assert float(metric.result()) == neutral


@pytest.mark.parametrize("ignored, share", [(0, 3 / 4), (4, 1), (None, 5 / 6)])
def test_accuracy_counts_all_classes_but_the_ignored_one(ignored, share):
    metric = TokenAccuracy(ignore_class=ignored)
    metric = TokenAccuracy.from_config(metric.get_config())
    wrong = np.where(SHORT == 4, 1, SHORT)
    metric.update_state(SHORT.astype("uint8"), logits_that_prefer(wrong))
    close(metric.result(), share)


def test_where_every_class_counts_keras_s_mask_says_what_is_padding():
    ids = np.array([[3, 4, 5], [2, 0, 0]])
    tags = np.array([[0, 1, 2], [3, 0, 0]])
    layers = keras.layers.Embedding(9, 5, mask_zero=True), keras.layers.Dense(4)
    model = keras.Sequential(layers)
    model.compile(
        loss=SmoothedCrossEntropy(0.0, ignore_class=None),
        metrics=[TokenAccuracy(ignore_class=None)],
    )
    loss, accuracy = model.evaluate(ids, tags, verbose=0)
    logits = np.array(model(ids))
    nats = paper.cross_entropies(tags[ids > 0], logits[ids > 0], 0.0)
    assert loss == pytest.approx(nats.mean(), 1e-5)
    right = logits.argmax(-1) == tags
    assert accuracy == pytest.approx(right[ids > 0].mean())


def test_autograph_reads_the_loss_of_a_loop_of_ones_own(caplog, monkeypatch):
    monkeypatch.setattr(tf.get_logger(), "handlers", [caplog.handler])
    loss = tf.function(SmoothedCrossEntropy(0.1))(TARGET, LOGITS)
    nats = paper.cross_entropies(TARGET[REAL], LOGITS[REAL], 0.1)
    close(loss, nats.mean(), 1e-6)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "of_target, of_logits, of_weights",
    [
        ((5,), (5, 3), (5,)),
        ((5, 1), (5, 1, 3), (5, 1)),
        # Weights of another rank than the target's belong to its rows.
        ((5,), (5, 3), (5, 1)),
        ((5, 1), (5, 3), (5,)),
    ],
)
def test_a_classifiers_labels_of_either_rank_are_weighed_and_counted(
    of_target, of_logits, of_weights
):
    target, weights = np.array([0, 1, 2, 1, 0]), np.array([1, 2, 3, 5, 7])
    logits = random_logits(7, (5, 3))
    nats = paper.cross_entropies(target, logits, 0.0)
    right = logits.argmax(-1) == target
    assert 0 < right.sum() < 5
    given = target.reshape(of_target), logits.reshape(of_logits)
    weighed = weights.reshape(of_weights).astype("float32")
    loss = SmoothedCrossEntropy(0.0, ignore_class=None)
    close(loss(*given, weighed), np.average(nats, weights=weights))
    accuracy = TokenAccuracy(ignore_class=None)
    accuracy.update_state(*given, weighed)
    close(accuracy.result(), np.average(right, weights=weights))


@pytest.mark.parametrize(
    "wrong", [TARGET.T, TARGET[:, :2], TARGET.ravel(), np.eye(7)[TARGET]]
)
@pytest.mark.parametrize(
    "score", [SmoothedCrossEntropy().call, TokenAccuracy(), Perplexity()]
)
def test_a_target_of_another_shape_than_the_logits_is_refused(score, wrong):
    with pytest.raises(ValueError, match=r"\(3, 5\)"):
        score(wrong, LOGITS)
