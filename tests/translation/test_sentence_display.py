"""The progress of translations, in a log and on a terminal."""

import logging
import types

from keras_transformer.translation import display


def test_a_log_tells_the_time_that_is_left(caplog, monkeypatch):
    seconds = iter([100.0, 150.0, 155.0, 250.0])
    clock = types.SimpleNamespace(monotonic=seconds.__next__)
    monkeypatch.setattr(display, "time", clock)

    with (
        caplog.at_level(logging.INFO, "keras_transformer"),
        display.SentenceDisplay(total=300) as progress,
    ):
        progress(50, 100)  # 50 s: a line.
        progress(60, 100)  # 5 s after it: none.
        progress.end_chunk(100)  # 100 s after it: a line.

    # 50 sentences in 50 s, then 100 in 150 s.
    assert caplog.messages == [
        "50 of 300 sentences, 0:04:10 left",
        "100 of 300 sentences, 0:05:00 left",
    ]
