"""The weights that later verbs take: averages of checkpoints."""

import dataclasses
import logging
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from sample_runs import make_tiny_model, tiny_run

from keras_transformer.config import UserError
from keras_transformer.runs import averaging
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import building


@pytest.fixture
def run_dir(tmp_path):
    """A run directory with three checkpoints of other weights each."""
    return shutil.copytree(tiny_run(), tmp_path / "run")


def test_as_many_checkpoints_as_the_recipe_says_are_averaged(run_dir, caplog):
    with caplog.at_level(logging.WARNING):
        model, chosen = averaging.load(run_dir)
    assert [name[-1] for name in chosen.checkpoints] == ["1", "2", "3"]
    assert "3 of the last 5 checkpoints" in caplog.text
    for found, *each in zip(
        model.get_weights(),
        *(make_tiny_model(seed).get_weights() for seed in (1, 2, 3)),
        strict=True,
    ):
        np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-7)


def test_a_number_in_the_configuration_does_not_fill_the_memory(run_dir):
    run = RunConfig.load(run_dir)
    chosen = averaging.choose(run_dir, run)
    model = dataclasses.replace(run.model, d_model=1 << 20)
    run = dataclasses.replace(run, model=model)
    with pytest.raises(UserError, match="too small"):
        chosen.load(run)
    # A training that goes on.
    with pytest.raises(UserError, match="too small"):
        building.build_model(SimpleNamespace(run=run, run_dir=run_dir))
