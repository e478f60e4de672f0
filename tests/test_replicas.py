"""Keras's `fit` of the plain model under strategies, in programs of their own.

Whole trainings by the command line are in training/test_exact_step.py.
"""

import fit_replicas
import numpy as np
import pytest
from forked_programs import Program
from local_workers import free_addresses, tf_config

pytestmark = pytest.mark.slow

TRAINED = ["with callbacks", "clipped, three steps a call", "by names"]
COMPARED = [*TRAINED, "on batches of texts"]


def start(strategies, output, **environment):
    return Program(
        "tests/support/fit_replicas.py", strategies, output, **environment
    )


def load(folder):
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


def start_workers(count, folder):
    addresses = free_addresses(count)
    return [
        start("worker", folder / str(i), TF_CONFIG=tf_config(addresses, i))
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """By strategy and way, the numbers that each of the programs saved."""
    folder = tmp_path_factory.mktemp("fitted")
    assert start("local", folder / "local").wait() == 0
    (lone,) = start_workers(1, folder / "lone")
    assert lone.wait() == 0
    pair = start_workers(2, folder / "pair")
    assert [process.wait() for process in pair] == [0, 0]
    return {
        "none": load(folder / "local" / "none"),
        "one device": load(folder / "local" / "one"),
        "mirrored": load(folder / "local" / "mirrored"),
        "lone worker": load(folder / "lone" / "0" / "worker"),
        "first worker": load(folder / "pair" / "0" / "worker"),
        "second worker": load(folder / "pair" / "1" / "worker"),
    }


SINGLE = ["one device", "lone worker"]
SEVERAL = ["mirrored", "first worker", "second worker"]
SCOPED = SINGLE + SEVERAL


def numbers(results, *starts):
    return {name: of for name, of in results.items() if name.startswith(starts)}


@pytest.mark.parametrize("way", COMPARED)
@pytest.mark.parametrize("strategy", SCOPED)
def test_every_strategy_trains_like_none(fitted, strategy, way):
    none, other = (
        numbers(fitted[name][way], "log ", "weight ")
        for name in ("none", strategy)
    )
    assert none.keys() == other.keys()
    for name in none:
        np.testing.assert_allclose(
            other[name], none[name], rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("way", TRAINED)
def test_a_training_that_is_compared_moves_the_weights(fitted, way):
    start = fit_replicas.make_model().get_weights()
    trained = fitted["none"][way]
    for i, weight in enumerate(start):
        assert np.abs(trained[f"weight {i}"] - weight).max() > 1e-4, i


@pytest.mark.parametrize("strategy", ["none", *SCOPED])
def test_callbacks_stop_save_and_log(fitted, strategy):
    results = fitted[strategy]["with callbacks"]
    assert results["epochs"] == 2
    # One log of training, one of validation.
    assert results["logged"] == 2
    np.testing.assert_allclose(results["again"], results["best"], rtol=1e-6)


@pytest.mark.parametrize("strategy", ["none", "mirrored", *SINGLE])
@pytest.mark.parametrize("name", ["predicted", "on_batch", "exported"])
def test_a_fitted_model_predicts_and_exports_what_it_answers(
    fitted, strategy, name
):
    results = fitted[strategy]["with callbacks"]
    np.testing.assert_allclose(
        results[name], results["logits"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("strategy", ["mirrored", *SINGLE])
def test_a_step_on_one_batch_is_that_of_none(fitted, strategy):
    loss, of_none = (
        fitted[name]["with callbacks"]["loss_on_batch"]
        for name in (strategy, "none")
    )
    np.testing.assert_allclose(loss, of_none, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["none", *SCOPED])
def test_the_end_of_the_data_ends_the_steps_of_a_call(fitted, strategy):
    # 5 batches an epoch, of which a call takes three.
    updates = fitted[strategy]["clipped, three steps a call"]["updates"]
    np.testing.assert_array_equal(updates, [3, 5, 8, 10])


@pytest.mark.parametrize("strategy", ["none", *SCOPED])
def test_an_overflow_on_the_second_replica_skips_the_update(fitted, strategy):
    results = fitted[strategy]["in float16 with an overflow"]
    assert results["finite"].all()
    assert results["updates"] == 4
    assert results["scale"] == 2.0**14


@pytest.mark.parametrize("model", ["plain", "bare"])
@pytest.mark.parametrize("strategy", ["none", *SCOPED])
def test_a_callback_ends_fit_after_the_step(fitted, strategy, model):
    assert fitted[strategy]["ended by a callback"][model] == 2


@pytest.mark.parametrize("strategy", ["lone worker", *SEVERAL])
def test_a_step_waits_for_no_device(fitted, strategy):
    # The first of two steps traces, and reads a number.
    first, second = fitted[strategy]["ended by a callback"]["bare reads"]
    assert first > 0
    assert second == 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("jit", "`jit_compile` must be False under "),
        ("accumulation", "`gradient_accumulation_steps` must be None under "),
        ("overwriting", "`ema_overwrite_frequency` must be None under "),
    ],
)
@pytest.mark.parametrize("strategy", SEVERAL)
def test_what_replicas_cannot_do_is_refused_in_one_sentence(
    fitted, strategy, what, message
):
    assert message in fitted[strategy]["refused"][what].item()
    assert fitted["none"]["refused"][what].item() == ""
    assert fitted["one device"]["refused"][what].item() == ""


@pytest.mark.parametrize("strategy", SCOPED)
def test_an_optimizer_made_outside_the_scope_is_refused(fitted, strategy):
    said = fitted[strategy]["refused"]["elsewhere"].item()
    assert "`optimizer` must be made in the scope of the strategy" in said
    assert said.endswith("an optimizer of _DefaultDistributionStrategy")
    assert fitted["none"]["refused"]["elsewhere"].item() == ""
