import keras
import numpy as np
import paper
import pytest

from keras_transformer.schedules import TransformerSchedule


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


def test_figures_of_the_base_model():
    # 512 ** -0.5 * 4000 ** -0.5 = 1 / sqrt(2,048,000) at the end of warm-up,
    # half of it after a quarter of the way down and halfway up.
    schedule = TransformerSchedule(d_model=512)
    peak = 1 / np.sqrt(2_048_000)
    np.testing.assert_allclose(schedule(3_999), peak, rtol=1e-6)
    np.testing.assert_allclose(schedule(1_999), peak / 2, rtol=1e-6)
    np.testing.assert_allclose(schedule(15_999), peak / 2, rtol=1e-6)


def test_the_rate_is_a_float32_scalar():
    rate = keras.ops.convert_to_tensor(TransformerSchedule(512)(np.int64(5)))
    assert rate.shape == ()
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"


def test_an_optimizer_starts_with_the_papers_first_step():
    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(TransformerSchedule(512, 4_000, 100.0))
    expected = 1.0
    for step_num in (1, 2, 3):
        optimizer.apply([np.ones(1, "float32")], [variable])
        expected -= 100 * paper.learning_rate(step_num, 512, 4_000)
        np.testing.assert_allclose(variable, [expected], rtol=1e-6)


def test_schedule_comes_back_from_a_serialised_optimizer():
    optimizer = keras.optimizers.Adam(TransformerSchedule(130, 1_700, 1.9))

    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))

    schedule = again._learning_rate
    assert isinstance(schedule, TransformerSchedule)
    assert schedule.get_config() == {
        "d_model": 130,
        "warmup_steps": 1_700,
        "scale": 1.9,
    }


@pytest.mark.parametrize("name", ["d_model", "warmup_steps", "scale"])
@pytest.mark.parametrize("value", [0, -3, float("nan")])
def test_schedule_refuses_arguments_that_are_not_positive(name, value):
    arguments = {"d_model": 512, name: value}
    called = "learning_rate_scale" if name == "scale" else name
    message = f"`{called}` to be .*, received {value}"
    with pytest.raises(ValueError, match=message):
        TransformerSchedule(**arguments)
