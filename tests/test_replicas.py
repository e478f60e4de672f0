"""Keras's `fit`, plain and exact, under strategies, in programs of their own.

Whole runs by workers are in training/test_workers.py.
"""

import fit_replicas
import numpy as np
import pytest
from forked_programs import Program
from local_workers import free_addresses, tf_config

CLIPPED = "clipped"
TRAINED = ["with callbacks", CLIPPED]
SEVERAL = ["mirrored", "first worker", "second worker"]
ACCUMULATED = "accumulated"
OF_STEPS = [ACCUMULATED, "by XLA", "accumulated by XLA"]


def start(output, strategy, *ways, **environment):
    return Program(
        *("tests/support/fit_replicas.py", output, strategy, *ways),
        log=output.with_suffix(".log"),
        **environment,
    )


def start_workers(count, folder, *ways):
    addresses = free_addresses(count)
    return [
        start(
            folder / str(i), "worker", *ways, TF_CONFIG=tf_config(addresses, i)
        )
        for i in range(count)
    ]


def end(folder, *programs):
    """Wait for programs that must end well; `folder` has their logs."""
    codes = [program.wait() for program in programs]
    logs = [path.read_text() for path in sorted(folder.glob("*.log"))]
    assert not any(codes), "\n".join(logs)


def load(folder):
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


@pytest.fixture(scope="module")
def clipped(tmp_path_factory):
    """What `make test` compares: two ways, on one replica and on two."""
    folder = tmp_path_factory.mktemp("clipped")
    for strategy in ("none", "mirrored"):
        ways = (CLIPPED, ACCUMULATED)
        end(folder, start(folder / strategy, strategy, *ways))
    return {name: load(folder / name) for name in ("none", "mirrored")}


@pytest.fixture(scope="module")
def fitted(clipped, tmp_path_factory):
    """By strategy and way, the numbers that each of the programs saved."""
    folder = tmp_path_factory.mktemp("fitted")
    kept = (CLIPPED, ACCUMULATED, "in float16")
    others = [way for way in fit_replicas.WAYS if way not in kept]
    for strategy in clipped:
        end(folder, start(folder / strategy, strategy, *others))
    end(folder, *start_workers(2, folder, *others, CLIPPED, ACCUMULATED))
    return {
        "first worker": load(folder / "0"),
        "second worker": load(folder / "1"),
        **{n: {**clipped[n], **load(folder / n)} for n in clipped},
    }


def assert_alike(other, none, rtol=1e-4, of=("log ", "weight ")):
    names = {n for n in none if n.startswith(of)}
    assert names and names == other.keys() & names
    for name in names:
        np.testing.assert_allclose(
            other[name], none[name], rtol=rtol, atol=1e-5, err_msg=name
        )


@pytest.mark.stands_for("fit under a strategy")
def test_two_replicas_train_like_none(clipped):
    one, two = clipped["none"], clipped["mirrored"]
    assert_alike(two[CLIPPED], one[CLIPPED])
    assert_alike(two[ACCUMULATED], one[ACCUMULATED], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", [*TRAINED, "on batches of texts"])
@pytest.mark.parametrize("strategy", SEVERAL)
def test_every_strategy_trains_like_none(fitted, strategy, way):
    assert_alike(fitted[strategy][way], fitted["none"][way])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["none", *SEVERAL])
def test_callbacks_stop_save_and_log(fitted, strategy):
    results = fitted[strategy]["with callbacks"]
    assert results["epochs"] == 2
    # One log of training, one of validation.
    assert results["logged"] == 2
    np.testing.assert_allclose(results["again"], results["best"], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_a_fitted_model_predicts_exports_and_trains_on(fitted, strategy):
    results = fitted[strategy]["with callbacks"]
    for name in ("predicted", "exported"):
        np.testing.assert_allclose(
            results[name], results["logits"], 1e-4, 1e-5, err_msg=name
        )
    of_none = fitted["none"]["with callbacks"]["loss_on_batch"]
    np.testing.assert_allclose(results["loss_on_batch"], of_none, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exactly", *OF_STEPS])
@pytest.mark.parametrize("strategy", SEVERAL)
def test_exact_steps_of_unequal_tokens_are_those_of_none(fitted, strategy, way):
    assert_alike(fitted[strategy][way], fitted["none"][way], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", OF_STEPS)
def test_how_a_step_is_computed_changes_no_weight(fitted, way):
    of_none = fitted["none"]
    assert_alike(of_none[way], of_none["exactly"], 1e-5, of="weight ")


@pytest.mark.slow
def test_every_replica_drops_other_units(fitted):
    one, two, three = (fitted[x]["with dropout"]["dropped"] for x in SEVERAL)
    for first, second in (one, (two[0], three[0])):
        assert (first != second).mean() > 0.1
