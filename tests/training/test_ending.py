"""The end of a training: which weights it keeps, and what it says of them."""

import dataclasses
import logging
import types

from sample_runs import make_tiny_model, write_tiny_run

from keras_transformer.runs.checkpoints import Standing
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import ending
from keras_transformer.training.request import Session


def test_an_average_that_is_only_validated_is_not_called_taken(
    tmp_path, caplog
):
    run_dir = write_tiny_run(tmp_path)
    run = RunConfig.load(run_dir)
    recipe = dataclasses.replace(run.training, average=3)
    run = dataclasses.replace(run, training=recipe)
    run.save(run_dir)
    found = {"average of the last 3 checkpoints": 2.5, "last weights": 1.5}
    validator = types.SimpleNamespace(
        model=make_tiny_model(0),
        measure=lambda what: {"loss": found[what], "perplexity": 7.0},
    )
    last = make_tiny_model(5).get_weights()
    with caplog.at_level(logging.INFO):
        session = Session(run_dir=run_dir, run=run)
        ending.finish(session, validator, last, Standing())
    first, wrote, *_ = caplog.messages
    assert first == "Validating the average of the last 3 checkpoints."
    assert "final.weights.h5, the last weights (validation loss" in wrote
