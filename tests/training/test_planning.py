"""A run keeps the plan of its batches, whatever a session would choose."""

import dataclasses
import json

import pytest
from natural_corpus import natural_corpus
from sample_runs import digit_arguments, make_run, train_on_digits

from keras_transformer.config import JobError
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.presets import PRESETS
from keras_transformer.training import loop, preparation
from keras_transformer.training.building import plan_batches


def asked_for():
    preset = PRESETS["tiny"]
    return make_run(preset.model, preset.training)


@pytest.mark.parametrize(
    "given, ladder", [({}, 1.06), ({"length_growth": 1.3}, 1.3)]
)
def test_the_plan_is_that_of_the_recipe(given, ladder):
    corpus = natural_corpus(503)
    recipe = dataclasses.replace(
        PRESETS["tiny"].training, batch_tokens=509, **given
    )
    plan = plan_batches(corpus, recipe)
    expected = BatchPlan(corpus, 509, recipe.seed, length_growth=ladder)
    assert plan.shapes() == expected.shapes()
    for one, other in zip(plan.epoch(1), expected.epoch(1), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
    other = BatchPlan(corpus, 509, recipe.seed, length_growth=1.11)
    assert plan.shapes() != other.shapes()


def test_a_resumed_run_has_the_batches_it_began_with(
    corpus, tmp_path, monkeypatch
):
    plans = []

    def stop(*args):
        raise JobError("That was enough.")

    monkeypatch.setattr(loop, "restore_model", stop)
    monkeypatch.setattr(
        preparation, "_describe", lambda run, plan, _: plans.append(plan)
    )
    for growth in (["--length-growth", "1.3"], []):
        argv = digit_arguments(corpus, tmp_path / "run", *growth)
        assert train_on_digits(*argv) == 1
        step = tmp_path / "run" / "checkpoints" / "step-000000001"
        step.mkdir(parents=True, exist_ok=True)  # As if it had begun.
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["training"]["length_growth"] == 1.3
    first, again = (plan.shapes() for plan in plans)
    assert first == again
