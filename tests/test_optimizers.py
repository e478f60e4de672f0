import keras
import numpy as np
import paper
import pytest

from keras_transformer.optimizers import Adam, TransformerSchedule


def test_adam_has_the_papers_constants():
    adam = Adam()
    assert (adam.beta_1, adam.beta_2, adam.epsilon) == (0.9, 0.98, 1e-9)


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
