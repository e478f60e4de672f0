"""One training after another in one process."""

import json

import pytest
from programs import run_program

from keras_transformer.runs.history import read_history
from keras_transformer.training import workers


@pytest.mark.slow
def test_a_second_training_of_other_layers_runs_on_two_replicas(
    corpus, tmp_path
):
    rates = (0.0, 0.1, 0.0)
    run_program("train_again.py", corpus, tmp_path, "mirrored", *rates)
    for i in range(3):
        assert read_history(tmp_path / str(i))[-1]["step"] == 3


@pytest.mark.slow
def test_trainings_leave_no_files_threads_or_memory_behind(corpus, tmp_path):
    rates = [0.1] * 12
    told = run_program("train_again.py", corpus, tmp_path, "none", *rates)
    files, threads, memory = zip(*json.loads(told)[6:], strict=True)
    assert len(set(files)) == 1
    assert max(threads) - min(threads) <= 2
    # MB. It falls and rises by up to 14; three graphs that are kept are 55.
    assert min(memory[-3:]) - min(memory[:3]) < 30


def test_a_process_has_one_mirrored_strategy():
    first, second = (workers.make_strategy("mirrored") for _ in range(2))
    assert first is second
