"""A training ends when validations find nothing better, and keeps the best."""

import contextlib
import logging
import types
from unittest import mock

import keras
import numpy as np
import pytest
import toy_trainings
from toy_trainings import arrays_of

import keras_transformer as kt
from keras_transformer.config import TrainingConfig
from keras_transformer.runs import checkpoints
from keras_transformer.runs.averaging import AVERAGE, BEST, final_result
from keras_transformer.runs.checkpoints import (
    Progress,
    Standing,
    find_best,
    list_checkpoints,
)
from keras_transformer.runs.history import History, read_history
from keras_transformer.training import validation
from keras_transformer.training.validation import Validation, counted, reached

EVERY = 2  # Updates between validations.
# After update 2, 4, 6, …; the history has six digits of each.
LOSSES = [5.0, 4.0, 4.5, 3.0, 3.0, 2.9999999, 3.5, 2.0, 1.0, 0.5]
# After the third validation that does not beat the one after update 8.
END = 14


@contextlib.contextmanager
def killed_at_row(monkeypatch, step, is_written=True):
    """Die when the history gets a row of that update or a later one."""
    add = History.add

    def dying(self, progress, **values):
        if progress.step < step or is_written:
            add(self, progress, **values)
        if progress.step >= step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(History, "add", dying)
        yield


def make_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


class Told(Validation):
    """Finds what it is told, whatever the weights."""

    def __init__(self, run_dir, recipe, model, values):
        self.run_dir, self.model, self.values = run_dir, model, values
        self.run = types.SimpleNamespace(training=recipe)
        self.on = recipe.patience_on

    def measure(self, what):
        step = int(what.removeprefix("step "))
        value = self.values[step // EVERY - 1]
        found = {"loss": 7.0, "bleu": 7.0, self.on: value}
        return {"perplexity": 1.0, "token_accuracy": 0.5, **found}


def make_recipe(patience=3, on="loss"):
    return TrainingConfig(
        validation_steps=EVERY, patience=patience, patience_on=on
    )


def session(run_dir, values, patience=3, on="loss", until=20, saves=()):
    """Train as `loop.train` does; returns the update that it ends after.

    The only weights that change are the number of the update.
    """
    model = make_model()
    start = checkpoints.restore_checkpoint(run_dir, model)
    now, log = start, History(run_dir, start.step)
    recipe = make_recipe(patience, on)
    validating = Told(run_dir, recipe, model, values)
    if reached(recipe, now):
        return now.step
    if now.step and now.step % EVERY == 0 and start.figures is None:
        now = validating.validate(now, model, log)
    while not reached(recipe, now) and now.step < until:
        step = now.step + 1
        now = Progress(step, float(step), standing=now.standing)
        model.weights[0].assign([[step], [step]])
        if step in saves:
            checkpoints.save_checkpoint(run_dir, model, now, keep=2)
        if step % EVERY == 0:
            now = validating.validate(now, model, log)
    log.close()
    for why in reached(recipe, now).values():
        logging.getLogger("keras_transformer").info(why)
    return now.step


def kept(run_dir):
    """The first number of all weights kept, by update."""
    return {
        checkpoints.step_of(path): max(map(np.max, of.values()))
        for path in list_checkpoints(run_dir, "best")
        for of in [arrays_of(path / "model.weights.h5")]
    }


@pytest.mark.parametrize("on", ["loss", "bleu"])
def test_it_ends_after_so_many_validations_without_a_better_one(
    tmp_path, caplog, on
):
    values = LOSSES if on == "loss" else [10 - x for x in LOSSES]
    caplog.set_level(logging.INFO)
    assert session(tmp_path, values, 3, on) == END
    best = {"loss": "loss than 3", "bleu": "BLEU than 7"}[on]
    (said,) = caplog.messages
    assert f"{best}, of update 8," in said


def test_without_patience_no_validation_ends_it_and_nothing_is_kept(tmp_path):
    assert session(tmp_path, [3.0] * 10, None) == 20
    assert not kept(tmp_path)


def test_no_number_of_checkpoints_pushes_the_best_weights_out(tmp_path):
    session(tmp_path, LOSSES, saves=range(1, 20))
    names = [path.name for path in checkpoints.list_checkpoints(tmp_path)]
    assert names == ["step-000000013", "step-000000014"]
    assert kept(tmp_path) == {8: 8.0}


@pytest.mark.parametrize("killed", range(1, END + 1))
@pytest.mark.parametrize("place", ["step", "before its row", "after its row"])
def test_a_kill_anywhere_changes_neither_the_end_nor_the_best(
    tmp_path, monkeypatch, killed, place
):
    saves = range(3, 20, 3)
    if place == "step":
        session(tmp_path, LOSSES, until=killed, saves=saves)
    else:
        with killed_at_row(monkeypatch, killed, place == "after its row"):
            session(tmp_path, LOSSES, saves=saves)

    assert session(tmp_path, LOSSES, saves=saves) == END

    assert kept(tmp_path) == {8: 8.0}
    rows = [row["step"] for row in read_history(tmp_path)]
    assert rows == list(range(2, END + 1, 2))


def test_a_damaged_checkpoint_takes_no_best_weights_with_it(tmp_path):
    # The newest has seen update 8, the one before it has not.
    saves = (7, 11)
    session(tmp_path, LOSSES, until=11, saves=saves)
    newest = checkpoints.list_checkpoints(tmp_path)[-1]
    (newest / "training.npz").write_bytes(b"")
    assert kept(tmp_path) == {4: 4.0, 8: 8.0}

    # On other replicas, say, what comes after update 7 is another model.
    other = [*LOSSES[:3], *[4.2] * 7]
    assert session(tmp_path, other, saves=saves) == 10
    assert kept(tmp_path) == {4: 4.0}


def test_damaged_best_weights_are_passed_over_with_a_word(tmp_path, caplog):
    session(tmp_path, LOSSES)
    path, found = find_best(tmp_path, Standing(8))
    assert (path.name, found.step) == ("best-000000008", 8)
    (path / "model.weights.h5").write_bytes(b"")
    assert find_best(tmp_path, Standing(8)) is None
    assert str(path) in caplog.text


def test_more_patience_goes_on_with_the_same_count(tmp_path):
    assert session(tmp_path, LOSSES, 1, saves=[6]) == 6
    assert session(tmp_path, LOSSES, 1) == 6
    assert session(tmp_path, LOSSES, 2, saves=[12]) == 12
    assert session(tmp_path, LOSSES, 3) == END


def test_patience_that_comes_late_counts_from_then_on(tmp_path):
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    session(tmp_path, values, None, until=4, saves=[4])
    assert session(tmp_path, values, 2) == 10
    assert kept(tmp_path) == {6: 6.0}


def test_a_validation_at_the_end_of_a_session_does_not_count(tmp_path):
    recipe = make_recipe(1)
    standing = counted(recipe, Progress(2), {"loss": 7.0})
    assert standing == Standing(2, 7.0, loss=7.0)
    later = Progress(3, standing=standing)
    assert counted(recipe, later, {"loss": 9.0}) == standing
    assert not reached(recipe, later)


def test_equal_bleu_is_no_end_while_the_loss_falls():
    # As of labels of one word, where BLEU is always 0.
    recipe, now = make_recipe(2, "bleu"), Progress()

    def count(step, loss, bleu):
        figures = {"loss": loss, "bleu": bleu}
        standing = counted(
            recipe, Progress(step, standing=now.standing), figures
        )
        return Progress(step, standing=standing)

    for step, loss in ((2, 5.0), (4, 4.0), (6, 3.0), (8, 3.5), (10, 3.0)):
        now = count(step, loss, 0.0)
    assert now.standing == Standing(6, 0.0, 2, "bleu", 3.0)
    (why,) = reached(recipe, now).values()
    assert "No better validation loss than 3, of update 6" in why
    # A better BLEU counts, whatever the loss.
    assert count(12, 9.0, 0.5).standing.best == 12


SETTINGS = dict(
    **toy_trainings.SETTINGS,
    target_bleu=float("inf"),
    steps=50,
    validation_steps=EVERY,
    checkpoint_every="3",
    average=1,
    keep_checkpoints=1,
    patience=3,
)


def train(run_dir, corpus, **more):
    return kt.train(run_dir, corpus=str(corpus), **{**SETTINGS, **more})


def let_validations_find(monkeypatch, losses):
    """Say what each finds, by what the log calls it."""

    def measure(self, what):
        others = {"perplexity": 7.0, "token_accuracy": 0.5, "bleu": 7.0}
        return {"loss": losses[what], **others}

    monkeypatch.setattr(validation.Validation, "measure", measure)


@pytest.mark.stands_for("trainings that patience ends")
def test_an_early_end_leaves_the_best_weights_and_a_kill_changes_no_bit(
    corpus, tmp_path, monkeypatch
):
    losses = {f"step {EVERY * (i + 1)}": x for i, x in enumerate(LOSSES)}
    let_validations_find(monkeypatch, losses)
    whole = train(tmp_path / "whole", corpus)
    with killed_at_row(monkeypatch, 10):
        train(tmp_path / "killed", corpus)

    killed = train(tmp_path / "killed", corpus)

    finals, lasts = [], []
    for run in (whole, killed):
        assert run.history()[-1]["step"] == END
        assert final_result(run.path).better == BEST
        assert final_result(run.path).checkpoints == ("best-000000008",)
        # Long since gone from the checkpoints.
        (newest,) = checkpoints.list_checkpoints(run.path)
        assert newest.name == "step-000000014"
        (best,) = list_checkpoints(run.path, "best")
        finals.append(arrays_of(run.path / "final.weights.h5"))
        lasts.append(arrays_of(newest / "model.weights.h5"))
        kept_best = arrays_of(best / "model.weights.h5")
        np.testing.assert_equal(finals[-1], kept_best)
    np.testing.assert_equal(*finals)
    np.testing.assert_equal(*lasts)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(finals[0], lasts[0])


def test_last_weights_that_are_better_than_the_best_validated_are_taken(
    corpus, tmp_path, monkeypatch
):
    losses = {"step 2": 3.0, "step 4": 3.1, "step 6": 3.2, "step 7": 2.0}
    let_validations_find(monkeypatch, losses)
    run = train(tmp_path / "run", corpus, steps=7)
    result = final_result(run.path)
    assert result.better == AVERAGE  # The average of one, the last.
    assert result.checkpoints == ("step-000000007",)
    assert result.validation[BEST]["loss"] == 3.0


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
    corpus, tmp_path, monkeypatch, caplog, rhythm
):
    rhythm = dict(checkpoint_every="4", patience=None, **rhythm)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr(validation.Validation, "validate", interrupt)
        train(tmp_path, corpus, **rhythm)
    assert [*map(checkpoints.step_of, list_checkpoints(tmp_path))] == [4]

    caplog.set_level(logging.INFO)
    run = train(tmp_path, corpus, **rhythm)

    has_target = "target_bleu" in rhythm
    assert ("BLEU has reached 0" in caplog.text) == has_target
    assert [*map(checkpoints.step_of, list_checkpoints(tmp_path))] == [4]
    rows = run.history()
    assert [row["step"] for row in rows if "validation_bleu" in row] == [4]
    # What lets it go on.
    train(tmp_path, corpus, **rhythm)
    way_on = "target_bleu" if has_target else "steps"
    assert f"goes on with a higher `{way_on}`." in caplog.text
