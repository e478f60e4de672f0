"""A run ends at the first figure that is not finite."""

import types

import keras
import numpy as np
import pytest
from train_session import TOY

from keras_transformer import presets
from keras_transformer.__main__ import main
from keras_transformer.commands import command_line
from keras_transformer.config import JobError
from keras_transformer.runs import checkpoints
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History
from keras_transformer.training.building import Training
from keras_transformer.training.display import FIGURES, Watch
from keras_transformer.training.request import Session

NAN, INF = float("nan"), float("inf")


def make_guard(run_dir, optimizer=None, weights=()):
    optimizer = optimizer or keras.optimizers.SGD()
    model = types.SimpleNamespace(optimizer=optimizer, weights=weights)
    session = Session(run_dir=run_dir)
    guard = Watch(Training(session, None, None, model=model), None)
    guard.first, guard.seconds = Progress(1), INF  # It shows nothing.
    return guard


def feed(guard, figures):
    """Let the guard see losses and norms of steps from 1 on."""
    for step, (loss, norm) in enumerate(figures, start=1):
        guard.step = step
        logs = dict.fromkeys(FIGURES, np.float32(1.0))
        logs |= {"batch_loss": np.float32(loss)}
        logs |= {"gradient_norm": np.float32(norm)}
        guard.after_step(Progress(step), logs)


GOOD = (2.5, 0.5)


@pytest.mark.parametrize(
    "bad, reason",
    [
        ((NAN, NAN), "the loss is nan"),
        ((INF, 0.5), "the loss is inf"),
        ((2.5, INF), "the norm of the gradient is inf"),
    ],
)
def test_the_first_bad_step_is_named(tmp_path, bad, reason):
    figures = [GOOD] * 12 + [bad] + [(NAN, NAN)] * 10
    guard = make_guard(tmp_path)
    with pytest.raises(JobError, match=f"^At step 13 {reason}; .*not written"):
        feed(guard, figures)
    assert guard.step % 10 == 0  # Not before it was time to look.


def test_infinite_weights_are_found_without_a_bad_loss(tmp_path):
    weights = [keras.Variable([1.0, 2.0]), keras.Variable([NAN, 0.0], name="w")]
    guard = make_guard(tmp_path, weights=weights)
    feed(guard, [GOOD] * 7)
    with pytest.raises(JobError, match="At step 7 .*w is not finite"):
        guard.check(guard.step)


def test_a_gradient_may_overflow_where_the_loss_is_scaled(tmp_path):
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    optimizer.build([keras.Variable([1.0])])
    guard = make_guard(tmp_path, optimizer)
    feed(guard, [GOOD, (2.5, INF), (2.5, NAN), GOOD] * 5)
    guard.check(guard.step)
    feed(guard, [(2.5, INF), (NAN, INF)])
    with pytest.raises(JobError, match="At step 2 the loss is nan"):
        guard.check(guard.step)


def test_a_training_that_blows_up_ends_with_one_sentence(
    corpus, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(presets, "PRESETS", {"toy": TOY})
    closed, run_dir = [], tmp_path / "run"
    monkeypatch.setattr(History, "close", lambda self: closed.append(self))
    argv = [
        *("--preset", "toy", "--corpus", str(corpus)),
        *("--run-dir", str(run_dir), "--checkpoint-every", "1"),
        # After one update the weights are about 1e29, so the next loss is
        # a difference of infinities.
        *("--learning-rate-scale", "1e30"),
    ]
    assert main(["train", *argv]) == command_line.FAILED
    error = capsys.readouterr().err
    assert error.count("error: At step 2 the loss is nan; ") == 1
    assert "Traceback" not in error
    assert len(closed) == 1
    (kept,) = checkpoints.list_checkpoints(run_dir)
    assert kept.name == "step-000000001" and f" {kept};" in error
