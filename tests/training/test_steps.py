"""What the steps of a training wait for, and what ends them."""

import signal
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from sample_runs import fit_tiny_model, make_tiny_model, tiny_batches

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.training import loop
from keras_transformer.training.loop import Stop


@pytest.fixture
def take_steps(monkeypatch):
    """The function that trains a tiny model for some steps."""

    def take(model, steps, after_step, callbacks=(), stop=None):
        batches = tiny_batches(steps).repeat()
        monkeypatch.setattr(loop.batching, "stream", lambda *_, **__: batches)
        training = SimpleNamespace(
            model=model,
            plan=None,
            run=SimpleNamespace(training=TrainingConfig(steps=steps)),
            session=SimpleNamespace(callbacks=callbacks),
        )
        monkeypatch.setattr(loop, "limits", lambda training, now: [])

        def write(now, logs):
            after_step(now, logs)
            return now

        writer = SimpleNamespace(after_step=write, at_end=lambda now: now)
        loop._take_steps(training, Progress(), stop or Stop(), writer)

    return take


@pytest.mark.stands_for("steps that callbacks watch")
def test_callbacks_of_others_get_the_floats_that_keras_gives(take_steps):
    own, theirs, by_keras = [], [], []

    def note(rows):
        return keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: rows.append(dict(logs)),
            on_epoch_end=lambda epoch, logs: rows.append(dict(logs)),
        )

    models = [make_tiny_model(3) for _ in range(2)]
    take_steps(models[0], 3, lambda now, logs: own.append(logs), [note(theirs)])
    fit_tiny_model(models[1], 3, [note(by_keras)])
    # Keras gives an epoch its metrics alone, and a step its figures too.
    assert theirs[:3] == by_keras[:3]
    assert theirs[3].items() >= by_keras[3].items()
    np.testing.assert_equal(*(model.get_weights() for model in models))
    for row in own:
        assert all(isinstance(x, tf.Tensor) for x in row.values())
    assert {type(x) for row in theirs for x in row.values()} == {float}


class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch >= 1


@pytest.mark.stands_for("steps that workers end")
def test_workers_end_together_as_they_agree(monkeypatch, take_steps):
    def train(sum_of, theirs=(), number=None):
        """Return the updates, and the signal that stands for others' wishes."""
        monkeypatch.setattr(loop.workers, "are_several", lambda strategy: True)
        monkeypatch.setattr(loop.workers, "sum_of", sum_of)
        model, stop = make_tiny_model(1), Stop()
        stop.signal = number
        take_steps(model, 25, lambda *_: None, theirs, stop)
        return int(model.optimizer.iterations), stop.signal

    wishes = []

    def own(strategy, wish):
        wishes.append(wish)
        return wish

    assert train(own, [End()]) == (10, None)
    assert wishes == [False, True]
    # A signal of before the first step.
    assert train(own, number=signal.SIGINT) == (0, signal.SIGINT)
    # Another worker's wish, told at the third time: that of the chief at an
    # ordinary end, which is no signal, or of one that was told to end.
    for total, number in ((1, None), (loop.TOLD + 1, signal.SIGTERM)):
        others = iter([0, 0, total])
        assert train(lambda *_, x=others: next(x)) == (20, number)
