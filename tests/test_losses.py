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


def gradient(loss, target, logits, factor=1.0, **options):
    """The derivative of `factor * loss` by the logits."""

    @tf.function(autograph=False, **options)
    def of(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = factor * loss(target, logits)
        return tape.gradient(value, logits)

    return of(tf.constant(logits)).numpy()


def expected_gradient(smoothing):
    """Softmax minus the reference, over the number of tokens."""
    reference = np.array(
        [paper.smoothed_distribution(row, 7, smoothing) for row in TARGET]
    )
    slopes = paper.softmax(LOGITS.astype("float64")) - reference
    return np.where(REAL[..., None], slopes, 0.0) / 8


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_loss_is_the_cross_entropy_with_the_whole_smoothed_distribution(
    smoothing,
):
    nats = paper.cross_entropies(TARGET[REAL], LOGITS[REAL], smoothing)
    loss = SmoothedCrossEntropy(smoothing)(TARGET, LOGITS)
    np.testing.assert_allclose(loss, nats.sum() / 8, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_gradient_is_softmax_minus_reference_per_token(smoothing, options):
    loss = SmoothedCrossEntropy(smoothing)
    # It follows what comes from above.
    np.testing.assert_allclose(
        gradient(loss, TARGET, LOGITS, factor=-3.0, **options),
        -3 * expected_gradient(smoothing),
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_batch_of_nothing_but_padding_or_no_weights_costs_nothing():
    nothing = np.zeros((3, 5), "int32")
    loss = SmoothedCrossEntropy(0.1)
    assert float(loss(TARGET, LOGITS, sample_weight=nothing)) == 0.0
    assert float(loss(nothing, LOGITS)) == 0.0
    np.testing.assert_array_equal(gradient(loss, nothing, LOGITS), 0.0)


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
    np.testing.assert_allclose(
        loss, np.average(nats, weights=of_real_tokens), rtol=1e-6
    )


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_logits_cost_a_finite_number(size):
    # All of the probability on token 1 of 4.
    logits = np.array([[[0.0, size, 0.0, 0.0]] * 2], "float32")
    target = np.array([[1, 2]])
    loss = SmoothedCrossEntropy(0.0)
    # 0 nats for the right token, `size` for the wrong one.
    np.testing.assert_allclose(loss(target, logits), size / 2, rtol=1e-6)
    # Smoothing by s adds s * (size - size / 4) and takes s * size.
    np.testing.assert_allclose(
        SmoothedCrossEntropy(0.2)(target, logits),
        (size + 0.2 * (2 * size * 3 / 4 - size)) / 2,
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        gradient(loss, target, logits),
        [[[0, 0, 0, 0], [0, 0.5, -0.5, 0]]],
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_used_in_float32(dtype):
    # 4,099 equal logits: in float16 the sum of exponentials sticks at 2,048.
    logits = keras.ops.zeros((1, 1, 4_099), dtype=dtype)
    loss = SmoothedCrossEntropy(0.1)(np.array([[5]]), logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    np.testing.assert_allclose(loss, np.log(4_099), rtol=1e-6)


def tied(smoothing, features, table, factor=1.0, **options):
    """Both losses, and the gradients of the weighted first one."""

    @tf.function(autograph=False, **options)
    def of(features, table):
        with tf.GradientTape() as tape:
            tape.watch([features, table])
            smoothed, plain = tied_cross_entropies(
                TARGET, features, table, smoothing
            )
            total = factor * tf.reduce_sum(
                tf.where(REAL, tf.cast(smoothed, tf.float32), 0.0)
            )
        return smoothed, plain, *tape.gradient(total, [features, table])

    return [x.numpy() for x in of(features, table)]


def features_and_table():
    random = np.random.default_rng(11)
    features = random.normal(size=(3, 5, 11))
    return features, random.normal(size=(7, 11))


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_tied_losses_and_gradients_follow_the_equations(smoothing, options):
    features, table = features_and_table()
    logits = features @ table.T
    reference = np.array(
        [paper.smoothed_distribution(row, 7, smoothing) for row in TARGET]
    )
    slopes = -3 * (paper.softmax(logits) - reference) * REAL[..., None]
    smoothed, plain, to_features, to_table = tied(
        smoothing,
        tf.constant(features, tf.float32),
        tf.constant(table, tf.float32),
        factor=-3.0,
        **options,
    )
    for ours, by_hand in ((smoothed, smoothing), (plain, 0.0)):
        np.testing.assert_allclose(
            ours[REAL],
            paper.cross_entropies(TARGET[REAL], logits[REAL], by_hand),
            rtol=1e-5,
            atol=1e-6,
        )
    np.testing.assert_allclose(
        to_features, slopes @ table, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        to_table,
        np.einsum("btv,btd->vd", slopes, features),
        rtol=1e-5,
        atol=1e-5,
    )


def test_tied_losses_of_half_precision_features_are_float32():
    features, table = features_and_table()
    features = features.astype("float16")
    smoothed, plain, to_features, to_table = tied(
        0.1, tf.constant(features), tf.constant(table, tf.float32)
    )
    assert smoothed.dtype == plain.dtype == to_table.dtype == "float32"
    assert to_features.dtype == "float16"
    logits = features.astype("float64") @ table.T
    np.testing.assert_allclose(
        smoothed[REAL],
        paper.cross_entropies(TARGET[REAL], logits[REAL], 0.1),
        rtol=1e-2,
        atol=1e-2,
    )


def test_a_hopeless_token_costs_87_nats_and_can_still_be_learnt():
    table = tf.eye(7, 11)
    features = -300.0 * table[:5][None] + tf.zeros((3, 1, 1))
    target = tf.constant([[0, 1, 2, 3, 4]] * 3)
    with tf.GradientTape() as tape:
        tape.watch(features)
        _, plain = tied_cross_entropies(target, features, table)
        smoothed, _ = tied_cross_entropies(target, features, table)
    np.testing.assert_allclose(plain, 87.3, atol=0.1)
    slope = tape.gradient(smoothed, features).numpy()
    np.testing.assert_allclose(slope[0, 2, 2], -1.0, atol=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "none"])
@pytest.mark.parametrize("ignored", [0, 3, None])
def test_ignored_class_and_reduction_are_as_in_keras(ignored, reduction):
    arguments = dict(ignore_class=ignored, reduction=reduction)
    theirs = keras.losses.SparseCategoricalCrossentropy(True, **arguments)
    ours = SmoothedCrossEntropy(0.0, **arguments)
    again = SmoothedCrossEntropy.from_config(ours.get_config())
    for target in (TARGET, TARGET.astype("uint8")):
        np.testing.assert_allclose(
            again(target, LOGITS), theirs(target, LOGITS), rtol=1e-5, atol=1e-6
        )
    mean = SmoothedCrossEntropy(0.0, ignore_class=ignored)(TARGET, LOGITS)
    real = TARGET != (-1 if ignored is None else ignored)
    nats = paper.cross_entropies(TARGET[real], LOGITS[real], 0.0)
    np.testing.assert_allclose(mean, nats.mean(), rtol=1e-5)


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
    np.testing.assert_allclose(metric.result(), 4 / 5, rtol=1e-6)


def test_perplexity_is_the_exponential_of_the_mean_over_batches():
    # Not the mean of the batches' perplexities: 4 tokens, then 11.
    longer = np.array([[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 0, 0]], "int32")
    first, second = random_logits(1), random_logits(2, (1, 13, 5))
    metric = Perplexity()
    metric.update_state(SHORT, first)
    metric.update_state(longer, second)
    nats = np.concatenate(
        [
            paper.cross_entropies(SHORT[KEPT], first[KEPT]),
            paper.cross_entropies(longer[longer != 0], second[longer != 0]),
        ]
    )
    np.testing.assert_allclose(metric.result(), np.exp(nats.mean()), rtol=1e-6)


def test_sample_weights_weigh_tokens_but_never_padding():
    logits = random_logits(3)
    weights = np.array([[2.0, 0.0, 1.0], [3.0, 9.0, 9.0]])
    nats = paper.cross_entropies(SHORT[KEPT], logits[KEPT])
    right = np.argmax(logits, axis=-1)[KEPT] == SHORT[KEPT]
    perplexity, accuracy = Perplexity(), TokenAccuracy()
    perplexity.update_state(SHORT, logits, sample_weight=weights)
    accuracy.update_state(SHORT, logits, sample_weight=weights)
    np.testing.assert_allclose(
        perplexity.result(),
        np.exp(np.average(nats, weights=weights[KEPT])),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        accuracy.result(),
        np.average(right, weights=weights[KEPT]),
        rtol=1e-6,
    )


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
    np.testing.assert_allclose(metric.result(), share)


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
    np.testing.assert_allclose(loss, nats.mean(), rtol=1e-6)
    assert caplog.messages == []


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


@pytest.mark.parametrize(
    "of_target, of_weights", [((5,), (5, 1)), ((5, 1), (5,))]
)
def test_weights_of_another_rank_than_the_target_belong_to_its_rows(
    of_target, of_weights
):
    target = np.array([0, 1, 2, 1, 0], "int32").reshape(of_target)
    logits = np.arange(15, dtype="float32").reshape(5, 3) % 4
    weights = np.array([1, 2, 3, 5, 7], "float32")
    each = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )(target.reshape(5), logits)
    expected = np.sum(weights * each) / 18
    loss = SmoothedCrossEntropy(0.0, ignore_class=None)
    found = float(loss(target, logits, weights.reshape(of_weights)))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "wrong", [TARGET.T, TARGET[:, :2], TARGET.ravel(), np.eye(7)[TARGET]]
)
@pytest.mark.parametrize(
    "score", [SmoothedCrossEntropy(), TokenAccuracy(), Perplexity()]
)
def test_a_target_of_another_shape_than_the_logits_is_refused(score, wrong):
    with pytest.raises(ValueError, match=r"\(3, 5\)"):
        score(wrong, LOGITS)
