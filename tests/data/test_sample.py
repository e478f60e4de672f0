"""A sample of lines: as many as asked for, any of them, in their order."""

import numpy as np
import pytest

from keras_transformer.data import learning
from keras_transformer.data.learning import Sample


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr(learning, "CHUNK", 97)


def test_few_lines_are_all_there(tmp_path):
    lines = ["one", "", " two\r", "drei\u2028vier\x0b"]
    text = Sample(tmp_path / "lines.txt", [*lines, "five\nsix"], most=6)
    # Whole, as they came; a text of several lines counts as several.
    expected = b"one\n\n two\r\ndrei\xe2\x80\xa8vier\x0b\nfive\nsix\n"
    assert (tmp_path / "lines.txt").read_bytes() == expected
    for _ in range(2):
        assert list(text.lines()) == [*lines, "five", "six"]
    nothing = Sample(tmp_path / "nothing.txt", [], most=3)
    assert list(nothing.lines()) == []


def test_of_many_lines_as_many_as_wanted_are_there_in_order(tmp_path):
    text = Sample(tmp_path / "lines.txt", map(str, range(100_003)), most=1009)
    numbers = list(map(int, text.lines()))
    assert len(numbers) == 1009
    assert numbers == sorted(set(numbers))
    # The file holds most · (1 + ln(n / most)) lines and some, not all.
    assert len(text.draws) < 1009 * 8
    # The mean of n draws has n^-1/2 of the spread of one, 0.29 of the range.
    middle = np.mean(numbers) / 100_003
    assert abs(middle - 0.5) < 5 * 0.29 / 1009**0.5


def test_every_line_has_the_same_chance(tmp_path):
    counts = np.zeros(211)
    for seed in range(400):
        numbers = map(str, range(211))
        text = Sample(tmp_path / "lines.txt", numbers, most=53, seed=seed)
        counts[list(map(int, text.lines()))] += 1
    chance = 53 / 211
    spread = (400 * chance * (1 - chance)) ** 0.5
    assert counts.sum() == 400 * 53
    assert abs(counts - 400 * chance).max() < 5 * spread
