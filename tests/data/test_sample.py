"""A sample of lines: all of them, or any, as many as memory holds, in order."""

import numpy as np

from keras_transformer.data import learning
from keras_transformer.data.learning import Sample


def test_few_lines_are_all_there_in_the_form_of_the_vocabulary(tmp_path):
    lines = ["one", "", " two\r", "drei\u2028vier\x0b", "e\u0301 \ufb01\ufa19"]
    text = Sample(tmp_path / "lines.txt", [*lines, "five\nsix"])
    # A text of several lines counts as several.
    more = "five", "six"
    kept = *lines[:4], "\xe9 \ufb01\ufa19", *more
    assert tuple(text.lines()) == kept


def test_of_many_lines_about_as_many_as_wanted_are_there_in_order(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(learning, "MAX_TRAINING_SENTENCES", 1009)
    text = Sample(tmp_path / "lines.txt", map(str, range(100_003)))
    numbers = list(map(int, text.lines()))
    assert 900 < len(numbers) < 2200
    assert numbers == sorted(set(numbers))
    # The file holds a few samples, not all.
    assert len((tmp_path / "lines.txt").read_text().split()) < 1009 * 16
    # The mean of n draws has n^-1/2 of the spread of one, 0.29 of the range.
    middle = np.mean(numbers) / 100_003
    assert abs(middle - 0.5) < 5 * 0.29 / 1009**0.5
