import keras
import numpy as np
import paper
import pytest
import tensorflow as tf

from keras_transformer.optimizers import Adam, TransformerSchedule


def variables_after(optimizer, steps=5):
    random = np.random.default_rng(3)
    variables = [
        keras.Variable(random.normal(size=shape))
        for shape in ((7, 3), (5,), (2, 3, 5))
    ]
    optimizer.build(variables)
    for _ in range(steps):
        gradients = [
            tf.constant(random.normal(size=v.shape), tf.float32)
            for v in variables
        ]
        optimizer.apply(gradients, variables)
    return [v.numpy() for v in variables]


def test_updates_are_the_equations_of_kingma_and_ba():
    random = np.random.default_rng(3)
    weights = [random.normal(size=s) for s in ((7, 3), (5,), (2, 3, 5))]
    means = [np.zeros_like(w) for w in weights]
    squares = [np.zeros_like(w) for w in weights]
    for step in range(1, 6):
        for w, m, v in zip(weights, means, squares, strict=True):
            g = random.normal(size=w.shape)
            m += 0.1 * (g - m)
            v += 0.02 * (g * g - v)
            w -= (
                0.01
                * (m / (1 - 0.9**step))
                / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)
            )
    for ours, expected in zip(
        variables_after(Adam(0.01)), weights, strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step_num", [1, 2_000, 4_000, 16_000, 300_000])
@pytest.mark.parametrize("d_model, warmup_steps", [(512, 4_000), (130, 1_700)])
def test_schedule_follows_equation_3(step_num, d_model, warmup_steps):
    schedule = TransformerSchedule(d_model, warmup_steps)
    # Keras passes 0 for the paper's first step.
    np.testing.assert_allclose(
        schedule(step_num - 1),
        paper.learning_rate(step_num, d_model, warmup_steps),
        rtol=1e-6,
    )


def test_an_optimizer_starts_with_the_papers_first_step():
    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(TransformerSchedule(512, 4_000, 100.0))
    expected = 1.0
    for step_num in (1, 2, 3):
        optimizer.apply([np.ones(1, "float32")], [variable])
        expected -= 100 * paper.learning_rate(step_num, 512, 4_000)
        np.testing.assert_allclose(variable, [expected], rtol=1e-6)
