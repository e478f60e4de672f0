import math
import os
import shutil
import signal
import types

import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from keras_transformer.config import JobError
from keras_transformer.optimizers import TransformerSchedule
from keras_transformer.runs import lock
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.history import History, draw, read_history
from keras_transformer.training import callbacks
from keras_transformer.training.display import (
    FIGURES,
    TrainingDisplay,
    log_count,
)

SCHEDULE = TransformerSchedule(16, 8)


def with_model(callback, **attributes):
    callback.set_model(types.SimpleNamespace(**attributes))
    return callback


class Clock:
    """A progress that the test sets."""

    def __init__(self, step=0, seconds=0.0):
        self.progress = Progress(step, seconds)

    def __call__(self):
        return self.progress


def test_the_stopwatch_goes_on_from_where_the_run_was():
    stopwatch = callbacks.Stopwatch(Progress(step=7, seconds=60.0))
    stopwatch.on_train_begin()
    for batch in range(3):
        stopwatch.on_train_batch_end(batch)
    now = stopwatch.now()
    assert now.step == 10
    assert 60.0 <= now.seconds < 61.0
    # The answer stays the same until the next step ends.
    assert stopwatch.now() == now


def test_a_line_weighs_every_step_by_its_tokens(tmp_path):
    clock = Clock()
    history = History(tmp_path, step=0)
    progress = TrainingDisplay(clock, history, 100, None, SCHEDULE)
    with_model(
        progress, optimizer=types.SimpleNamespace(iterations=4)
    ).on_train_begin()
    progress.seconds = 1000.0
    names = ("tokens", "batch_loss", "batch_perplexity", "gradient_norm")
    for step, figures in enumerate(
        [(1.0, 5.0, 2.0, 0.5), (3.0, 1.0, 8.0, 0.7), (0.0, 1.0, 1.0, math.inf)],
        start=2,
    ):
        clock.progress = Progress(step, 2.0)
        progress.on_train_batch_end(
            step, dict(zip(names, figures, strict=True))
        )
    progress.on_train_end()
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
    "minutes, done, left",
    [
        (None, 30 / 110, 80 * 2.0),  # 20 steps took 40 s.
        (2.0, 100 / 120, 20.0),  # Time is up before the steps are.
        (60.0, 30 / 110, 80 * 2.0),
    ],
)
def test_the_time_left_is_that_of_the_limit_that_comes_first(
    tmp_path, minutes, done, left
):
    clock = Clock(step=10, seconds=60.0)
    history = History(tmp_path, step=10)
    progress = TrainingDisplay(clock, history, 110, minutes, SCHEDULE)
    progress.on_train_begin()
    assert progress.estimate(Progress(30, 100.0)) == pytest.approx((done, left))


def test_no_time_left_is_guessed_from_the_first_step(tmp_path):
    clock = Clock(step=10, seconds=60.0)
    progress = TrainingDisplay(
        clock, History(tmp_path, 10), 110, None, SCHEDULE
    )
    progress.on_train_begin()
    values = dict.fromkeys(
        ("loss", "perplexity", "gradient_norm", "tokens_per_second"), 1.0
    )
    first, second = (
        progress.line(Progress(step, 70.0), values)[0] for step in (11, 12)
    )
    assert first.endswith("1 target tokens/s")
    assert second.endswith("1 target tokens/s  0:08:10 left")


STEP = {name: 1.0 for name in FIGURES}


@pytest.mark.parametrize(
    "minutes, warns",
    [(2.0, True), (None, False), (200.0, False)],
)
def test_lines_come_often_at_first_and_tell_that_the_minutes_are_too_few(
    tmp_path, caplog, minutes, warns
):
    clock = Clock()
    display = TrainingDisplay(
        clock,
        History(tmp_path, 0),
        10_000,
        minutes,
        TransformerSchedule(16, 4_000),
    )
    with_model(
        display, optimizer=types.SimpleNamespace(iterations=1)
    ).on_train_begin()
    for step in range(200):
        clock.progress = Progress(step + 1, 12.0 + 0.6 * step)
        with caplog.at_level("WARNING"):
            display.on_train_batch_end(step, STEP)
    seconds = [round(60 * row["minutes"]) for row in read_history(tmp_path)]
    assert seconds == [12, 17, 28, 48, 88]
    # (120 - 12) / 0.6 + 1 updates in all.
    expected = ["At this speed 2 minutes end after about 181 updates,"]
    found = [text.partition(" inside")[0] for text in caplog.messages]
    assert found == (expected if warns else [])


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
    } == {"loss": [10, 20], "validation_bleu": [25]}


def test_a_history_adds_no_row_to_a_run_that_was_begun_anew(tmp_path):
    with lock.only_writer(tmp_path / "run"):
        history = History(tmp_path / "run", step=0)
        shutil.rmtree(tmp_path / "run")
        other = History(tmp_path / "run", step=0)
        with pytest.raises(JobError, match="began it anew"):
            history.add(Progress(10, 60.0), loss=2.0)
    assert other.path.read_text().count("\n") == 1  # The names alone.


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


def test_a_history_of_before_there_were_norms_goes_on(tmp_path):
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "history.csv"
    path.write_text("step,minutes,loss\r\n10,1.000,2.5\r\n", newline="")
    history = History(tmp_path, step=10)
    history.add(Progress(20, 120.0), gradient_norm=0.5)
    assert read_history(tmp_path) == [
        {"step": 10, "minutes": 1, "loss": 2.5},
        {"step": 20, "minutes": 2, "gradient_norm": 0.5},
    ]


def test_no_history_has_no_rows(tmp_path):
    assert read_history(tmp_path) == []


def test_training_stops_when_its_minutes_are_over():
    clock = Clock()
    stop = with_model(callbacks.StopTraining(clock, 2.0), stop_training=False)
    clock.progress = Progress(5, 119.0)
    stop.on_train_batch_end(0)
    assert not stop.model.stop_training
    clock.progress = Progress(6, 120.0)
    stop.on_train_batch_end(1)
    assert stop.model.stop_training


def test_a_second_ctrl_c_is_an_exception_and_a_second_sigterm_deadly():
    process = os.fork()
    if not process:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop = callbacks.StopTraining(Clock(), None)
        try:
            with stop.listening():
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.signal == signal.SIGINT
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                except KeyboardInterrupt:
                    os.kill(os.getpid(), signal.SIGTERM)
                    assert stop.signal == signal.SIGTERM
                    os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


@pytest.mark.parametrize(
    "before, noted",
    [(lambda *_: None, signal.SIGHUP), (signal.SIG_IGN, None)],
    ids=["as usual", "under nohup"],
)
def test_a_closed_terminal_ends_a_training_that_nobody_told_to_go_on(
    before, noted
):
    found = signal.signal(signal.SIGHUP, before)
    try:
        stop = callbacks.StopTraining(Clock(), None)
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal == noted
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, found)


def test_the_curve_is_a_picture_of_the_history(tmp_path):
    history = History(tmp_path, step=0)
    for step in (10, 20):
        history.add(Progress(step, 6.0 * step), loss=9.0 - step / 10)
        history.add(Progress(step, 6.0 * step), validation_bleu=step / 2)
    path = draw(tmp_path)
    assert path == tmp_path / "curve.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".partial*"))


def test_a_count_is_logged_only_every_so_often(caplog):
    with caplog.at_level("INFO"):
        log_count("pairs", seconds=1000)(5)
        log_count("pairs", seconds=0)(12_345)
    assert caplog.messages == ["12,345 pairs"]
