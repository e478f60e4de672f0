"""What a step of `fit` waits for."""

import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src import backend
from sample_runs import fit_tiny_model, make_tiny_model

from keras_transformer.optimizers import TransformerSchedule
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History
from keras_transformer.training.callbacks import (
    StepCallbacks,
    StepWindow,
    StopOnNonFinite,
    StopTraining,
    Stopwatch,
)
from keras_transformer.training.display import TrainingDisplay


@pytest.fixture
def reads(monkeypatch):
    """Gets the number of floats read from a device, at each read."""
    tensor = type(tf.constant(0)).__mro__[1]
    counted = []

    def counting(read):
        def count(value):
            if isinstance(value, tf.Tensor) and value.dtype.is_floating:
                counted.append(value.shape.num_elements())
            return read(value)

        return count

    # float(), bool() and numpy() all call this, or Keras's own function.
    monkeypatch.setattr(tensor, "_numpy", counting(tensor._numpy))
    to_numpy = counting(backend.convert_to_numpy)
    monkeypatch.setattr(backend, "convert_to_numpy", to_numpy)
    return counted


def note_reads(reads):
    """A list that gets the number of reads by each step's end; who fills it."""
    so_far = []
    return so_far, keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: so_far.append(len(reads))
    )


def test_steps_are_read_by_ten_in_one_transfer_for_each_reader(tmp_path, reads):
    model = make_tiny_model(3)
    stopwatch = Stopwatch(Progress())
    now = stopwatch.now
    schedule = TransformerSchedule(16)
    display = TrainingDisplay(now, History(tmp_path, 0), 41, None, schedule)
    display.bar.disable = False  # As on a terminal.
    display.bar.console.file = open(tmp_path / "screen", "w")
    guard = StopOnNonFinite(tmp_path, now, None, None)
    so_far, counter = note_reads(reads)
    own = [stopwatch, guard, display, counter]
    fit_tiny_model(model, 41, StepCallbacks(own, [], model))

    new = np.diff([0, *so_far])
    # The guard looks after 10, 20, …; the display has a line after the first
    # step, with the rate, and its bar moves after 11, 21, ….
    assert new.tolist() == [2] + ([0] * 8 + [1, 1]) * 4
    assert model.history.history["loss"][0] > 0


@pytest.mark.stands_for("steps that callbacks watch")
def test_callbacks_of_others_get_the_floats_that_keras_gives(tmp_path):
    own, theirs, by_keras = [], [], []

    def note(rows):
        return keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: rows.append(dict(logs))
        )

    model = make_tiny_model(3)
    fit_tiny_model(model, 3, StepCallbacks([note(own)], [note(theirs)], model))
    fit_tiny_model(make_tiny_model(3), 3, [note(by_keras)])
    assert theirs == by_keras
    for row in own:
        assert all(isinstance(x, tf.Tensor) for x in row.values())
    assert {type(x) for row in theirs for x in row.values()} == {float}


def test_others_that_look_at_no_step_cost_none(reads):
    model = make_tiny_model(3)
    so_far, counter = note_reads(reads)
    idle = keras.callbacks.EarlyStopping("loss")
    fit_tiny_model(model, 5, StepCallbacks([counter], [idle], model))
    assert so_far == [0] * 5


def test_a_window_keeps_what_it_has_read(reads):
    window = StepWindow(("a", "b"))
    for step in range(3):
        window.append(
            {"a": tf.constant(0.0 + step), "b": tf.constant(0.5 + step)}
        )
    expected = [[0, 0.5], [1, 1.5], [2, 2.5]]
    assert window.read().tolist() == expected
    window.append({"a": tf.constant(7.0), "b": tf.constant(11.0), "c": None})
    assert len(window) == 4
    assert window.read().tolist() == [*expected, [7, 11]]
    assert reads == [6, 2]
    window.clear()
    assert len(window) == 0 and window.read().shape == (0, 2)


@pytest.mark.stands_for("steps that workers end")
def test_workers_end_after_the_step_that_follows_a_wish():
    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = self.model.stop_training or batch == 1

    def train(vote, theirs=(), wanted=False):
        """Return the updates, and the signal that stands for others' wishes."""
        model = make_tiny_model(1)
        stop = StopTraining(Stopwatch(Progress()).now, None, True, wanted)
        steps = StepCallbacks([stop], theirs, model, vote=vote, stop=stop)
        fit_tiny_model(model, 5, steps)
        return int(model.optimizer.iterations), stop.signal

    votes = []
    ended = train(lambda x: votes.append(x) or x, [End()])
    assert ended == (3, None)
    assert votes == [False, False, True]
    # A wish of before the first step.
    assert train(lambda x: x, wanted=True) == (1, None)
    # Another worker's wish, told with the third vote.
    others = iter([False, False, True])
    assert train(lambda _: next(others)) == (3, signal.SIGTERM)
