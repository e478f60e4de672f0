import dataclasses
import math
import os
import re
import signal
import types

import keras
import pytest
from sample_runs import TINY, make_run
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History, read_history
from keras_transformer.training.building import Training
from keras_transformer.training.display import FIGURES, Watch, warn_of_warm_up
from keras_transformer.training.loop import Stop
from keras_transformer.training.request import Session


def make_display(run_dir, begin, steps, minutes, updates=1, warmup=8):
    # Its gradient may overflow.
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    optimizer.build([keras.Variable([1.0])])
    optimizer.iterations.assign(updates)
    model = types.SimpleNamespace(optimizer=optimizer)
    recipe = TrainingConfig(steps=steps, warmup_steps=warmup)
    run = make_run(dataclasses.replace(TINY, d_model=16), recipe)
    session = Session(run_dir=run_dir, run=run, minutes=minutes)
    training = Training(session, None, None, model=model, start=begin)
    return Watch(training, History(run_dir, begin.step))


def show(display, now, figures):
    display.after_step(now, dict(zip(FIGURES, figures, strict=True)))


def test_a_line_weighs_every_step_by_its_tokens(tmp_path):
    display = make_display(tmp_path, Progress(), 100, None, updates=4)
    display.first, display.seconds = Progress(1, 0.0), 1000.0
    for step, figures in enumerate(
        [(1.0, 5.0, 2.0, 0.5), (3.0, 1.0, 8.0, 0.7), (0.0, 1.0, 1.0, math.inf)],
        start=2,
    ):
        show(display, Progress(step, 2.0), figures)
    display.report(Progress(step, 2.0))
    (row,) = read_history(tmp_path)
    assert row["loss"] == pytest.approx((5 + 3 * 1) / 4)
    # The exponential of the mean of ln 2 and three times ln 8.
    expected = math.exp((math.log(2) + 3 * math.log(8)) / 4)
    assert row["perplexity"] == pytest.approx(expected, rel=1e-5)
    assert row["tokens_per_second"] == pytest.approx(4 / 2.0)
    # Equation 3 for the fourth update of a warm-up of 8.
    assert row["learning_rate"] == pytest.approx(16**-0.5 * 4 * 8**-1.5)
    # A mean over the updates, without the one that float16 skipped.
    assert row["gradient_norm"] == pytest.approx((0.5 + 0.7) / 2)
    assert row["minutes"] == pytest.approx(2 / 60, abs=1e-3)


@pytest.mark.parametrize(
    "minutes, left",
    [
        (None, 80 * 2.0),  # 20 steps took 40 s.
        (2.0, 20.0),  # Time is up before the steps are.
        (60.0, 80 * 2.0),
    ],
)
def test_the_time_left_is_that_of_the_limit_that_comes_first(
    tmp_path, minutes, left
):
    display = make_display(tmp_path, Progress(10, 60.0), 110, minutes)
    assert display.seconds_left(Progress(30, 100.0)) == pytest.approx(left)


@pytest.mark.parametrize(
    "minutes, warns", [(2.0, True), (None, False), (200.0, False)]
)
def test_lines_come_often_at_first_and_tell_that_the_minutes_are_too_few(
    tmp_path, caplog, minutes, warns
):
    begin = Progress()
    display = make_display(tmp_path, begin, 10_000, minutes, warmup=4_000)
    for step in range(200):
        with caplog.at_level("WARNING"):
            show(display, Progress(step + 1, 12.0 + 0.6 * step), [1.0] * 4)
    seconds = [round(60 * row["minutes"]) for row in read_history(tmp_path)]
    assert seconds == [12, 17, 28, 48, 88]
    # (120 - 12) / 0.6 + 1 updates in all.
    assert len(caplog.messages) == warns
    assert ("about 181 updates" in caplog.text) == warns


def test_a_shorter_warm_up_is_advised_with_a_scale_for_the_same_peak(caplog):
    recipe = TrainingConfig(warmup_steps=2_000, learning_rate_scale=2.8)
    warn_of_warm_up(recipe, 2_000)
    assert not caplog.messages
    warn_of_warm_up(recipe, 1_790)
    (advice,) = caplog.messages
    warmup, scale = (float(x) for x in re.findall(r"` ([\d.]+)", advice))
    # The highest rate of equation 3 is where its two branches meet.
    assert scale * warmup**-0.5 == pytest.approx(2.8 * 2_000**-0.5, rel=1e-2)
    assert warmup < 1_790 / 2


def test_history_forgets_what_came_after_the_resumed_step(tmp_path):
    history = History(tmp_path, step=0)
    for step in (10, 20, 30):
        history.add(Progress(step, step), loss=5.0 - step / 10)
    resumed = History(tmp_path, step=20)
    resumed.add(Progress(25, 25.0), validation_bleu=12.5)
    rows = read_history(tmp_path)
    assert [row["step"] for row in rows] == [10, 20, 25]
    assert rows[1]["loss"] == 3.0
    assert rows[2] == {"step": 25, "minutes": 0.417, "validation_bleu": 12.5}
    resumed.close()
    shown = EventAccumulator(str(tmp_path / "logs")).Reload()
    assert {
        name: [event.step for event in shown.Tensors(name)]
        for name in shown.Tags()["tensors"]
    } == {"loss": [10, 20, 30], "validation_bleu": [25]}


def test_a_row_that_was_cut_short_is_passed_over(tmp_path):
    history = History(tmp_path, step=0)
    for step in (10, 20):
        history.add(Progress(step, 60.0 * step), loss=2.5)
    path = tmp_path / "logs" / "history.csv"
    whole = path.read_bytes()
    row = len(b"20,20.000,2.5,,,,,,,,\r\n")
    for size in range(len(whole) - row, len(whole)):
        path.write_bytes(whole[:size])
        assert read_history(tmp_path) == [
            {"step": 10, "minutes": 10, "loss": 2.5}
        ]
    # The next session writes whole rows again.
    History(tmp_path, step=20).add(Progress(23, 60.0), loss=2.0)
    rows = read_history(tmp_path)
    assert [row["step"] for row in rows] == [10, 23]


def exit_code_of(listen):
    """Listen for signals in a process of its own."""
    process = os.fork()
    if not process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            listen(Stop())
        except KeyboardInterrupt:
            os._exit(130)
        except SystemExit as end:
            os._exit(end.code)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(
    "number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_a_signal_where_there_are_no_steps_ends_at_once(number, code):
    def listen(stop):
        with stop.listening():
            os.kill(os.getpid(), number)

    assert exit_code_of(listen) == code


def test_a_second_ctrl_c_is_an_exception_and_a_second_sigterm_deadly():
    def listen(stop):
        stop.has_steps = True
        with stop.listening():
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.signal == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
            os.kill(os.getpid(), signal.SIGTERM)

    assert exit_code_of(listen) == -signal.SIGTERM


@pytest.mark.parametrize(
    "before, noted",
    [(lambda *_: None, signal.SIGHUP), (signal.SIG_IGN, None)],
    ids=["as usual", "under nohup"],
)
def test_a_closed_terminal_ends_a_training_but_under_nohup(before, noted):
    found = signal.signal(signal.SIGHUP, before)
    try:
        stop = Stop()
        stop.has_steps = True
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal == noted
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, found)
