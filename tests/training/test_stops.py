"""A training that is killed or refused ends as one that never was."""

import keras
import pytest
import toy_trainings

import keras_transformer as kt
from keras_transformer.runs import checkpoints
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.validation import Validation


class Killed(Exception):
    pass


def kill(*_):
    raise Killed


def train(run_dir, corpus, **settings):
    settings = {"target_bleu": float("inf"), **settings}
    return kt.train(
        run_dir, corpus=str(corpus), **{**toy_trainings.SETTINGS, **settings}
    )


def updates(run_dir):
    return [*map(checkpoints.step_of, checkpoints.list_checkpoints(run_dir))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rhythm",
    [
        # The first validation reaches the target.
        dict(steps=11, validation_steps=4, target_bleu=0.0),
        # The last one is left, at no multiple of its interval.
        dict(steps=4, validation_steps=7),
    ],
    ids=["in the midst", "at the end"],
)
def test_a_validation_that_a_kill_left_undone_still_ends_the_training(
    corpus, tmp_path, monkeypatch, rhythm
):
    rhythm = dict(checkpoint_every="4", **rhythm)
    with monkeypatch.context() as patch:
        patch.setattr(Validation, "validate", kill)
        with pytest.raises(Killed):
            train(tmp_path / "run", corpus, **rhythm)
    assert updates(tmp_path / "run") == [4]

    run = train(tmp_path / "run", corpus, **rhythm)

    assert updates(tmp_path / "run") == [4]
    rows = run.history()
    assert [row["step"] for row in rows if "validation_bleu" in row] == [4]


@pytest.mark.slow
def test_a_call_that_took_no_step_binds_no_later_one(corpus, tmp_path):
    class Failing(keras.callbacks.Callback):
        on_train_begin = kill

    with pytest.raises(Killed):
        train(tmp_path / "run", corpus, steps=2, callbacks=[Failing()])
    assert RunConfig.load(tmp_path / "run").model.dropout == 0.1

    other = dict(steps=2, dropout=0.3, vocab_size=310, preset="tiny")
    run = train(tmp_path / "run", corpus, **other)

    assert run.config.preset == "tiny"
    assert run.config.model.dropout == 0.3
    assert run.config.requested_vocab_size == 310
    # The first step does.
    with pytest.raises(kt.UserError, match="was trained with dropout = 0.3"):
        train(tmp_path / "run", corpus, **{**other, "dropout": 0.1})
