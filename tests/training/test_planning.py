"""A run keeps the plan of its batches, whatever a session would choose."""

import dataclasses
import json
import logging

import pytest
from natural_corpus import natural_corpus
from sample_runs import digit_arguments, make_run, train_on_digits

from keras_transformer.config import JobError
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.presets import PRESETS
from keras_transformer.training import loop, preparation
from keras_transformer.training.building import choose_lengths, plan_batches


def asked_for(growth=None):
    preset = PRESETS["tiny"]
    recipe = dataclasses.replace(preset.training, length_growth=growth)
    return make_run(preset.model, recipe)


@pytest.mark.parametrize(
    "growth, xla, chosen",
    [(None, True, 1.15), (None, False, 1.06), (1.3, True, 1.3)],
)
def test_where_a_run_begins_xla_asks_for_fewer_shapes(growth, xla, chosen):
    begun = choose_lengths(asked_for(growth), xla)
    assert begun.training.length_growth == chosen


@pytest.mark.parametrize("growth, ladder", [(None, 1.06), (1.3, 1.3)])
def test_the_plan_is_that_of_the_recipe(growth, ladder):
    corpus = natural_corpus(503)
    recipe = dataclasses.replace(
        PRESETS["tiny"].training, batch_tokens=509, length_growth=growth
    )
    plan = plan_batches(corpus, recipe)
    expected = BatchPlan(corpus, 509, recipe.seed, length_growth=ladder)
    assert plan.shapes() == expected.shapes()
    for one, other in zip(plan.epoch(1), expected.epoch(1), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
    other = BatchPlan(corpus, 509, recipe.seed, length_growth=1.11)
    assert plan.shapes() != other.shapes()


@pytest.mark.parametrize("pairs, said", [(1, "1 batch of"), (503, " batches")])
def test_the_log_counts_the_batches(caplog, pairs, said):
    caplog.set_level(logging.INFO)
    plan = BatchPlan(natural_corpus(pairs), 509, 1)
    preparation._describe(asked_for(), plan, 11)
    assert f"{pairs} training pairs in {len(plan)} batch" in caplog.text
    assert said in caplog.text


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
    for name, choices in (("with", ("on", "off")), ("without", ("off", "on"))):
        for xla in choices:
            argv = digit_arguments(corpus, tmp_path / name, "--xla", xla)
            assert train_on_digits(*argv) == 1
            step = tmp_path / name / "checkpoints" / "step-000000001"
            step.mkdir(parents=True, exist_ok=True)  # As if it had begun.
        config = json.loads((tmp_path / name / "config.json").read_text())
        growth = config["training"]["length_growth"]
        assert growth == {"with": 1.15, "without": 1.06}[name]
    first, again, other, other_again = (plan.shapes() for plan in plans)
    assert first == again
    assert other == other_again
    assert first != other
