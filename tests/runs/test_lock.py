"""One process at a time writes into a run directory."""

import errno
import multiprocessing
import os
import shutil
import signal
import time

import pytest

from keras_transformer.config import JobError, UserError
from keras_transformer.runs import layout

fork = multiprocessing.get_context("fork")


def test_of_many_that_start_in_an_absent_directory_one_is_in_at_a_time(
    tmp_path,
):
    """It comes and goes with every holder, which is where locks race."""
    run_dir, entered = tmp_path / "run", tmp_path / "entered"

    def enter_often(times):
        done = 0
        while done < times:
            try:
                with layout.only_writer(run_dir):
                    (run_dir / "inside").mkdir()  # Fails where one is there.
                    time.sleep(0.001)
                    (run_dir / "inside").rmdir()
            except UserError:
                continue
            done += 1
            with open(entered, "a") as file:
                file.write("x")

    each = (29, 31, 37, 41)
    processes = [fork.Process(target=enter_often, args=(x,)) for x in each]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert len(entered.read_text()) == sum(each)
    assert not run_dir.exists() or not os.listdir(run_dir)


def test_a_process_that_is_killed_lets_go(tmp_path):
    process = os.fork()
    if not process:
        with layout.only_writer(tmp_path):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert os.listdir(tmp_path) == ["training.lock"]
    with layout.only_writer(tmp_path):
        assert os.listdir(tmp_path) == ["training.lock"]
    assert os.listdir(tmp_path) == []


def test_what_was_written_stays_and_an_empty_new_directory_goes(tmp_path):
    with layout.only_writer(tmp_path / "a" / "b"):
        pass
    assert os.listdir(tmp_path / "a") == []
    with layout.only_writer(tmp_path / "c"):
        (tmp_path / "c" / "config.json").write_text("{}")
    assert os.listdir(tmp_path / "c") == ["config.json"]


@pytest.mark.parametrize("is_begun_anew", [False, True])
def test_a_directory_that_was_removed_is_held_no_more(tmp_path, is_begun_anew):
    run_dir = tmp_path / "run"
    with layout.only_writer(run_dir):
        layout.check_lock(run_dir)
        shutil.rmtree(run_dir)
        if is_begun_anew:
            run_dir.mkdir()
            (run_dir / "training.lock").write_text("{}")
        with pytest.raises(JobError, match="training.lock"):
            layout.check_lock(run_dir)
    layout.check_lock(run_dir)  # Nobody holds anything now.
    # The lock of another training is not for us to remove.
    assert run_dir.exists() == is_begun_anew
    assert is_begun_anew == (run_dir / "training.lock").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, 524, errno.EBADF])
def test_a_file_system_without_locks_is_told_and_trained_on(
    tmp_path, monkeypatch, caplog, number
):
    def flock(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(layout.fcntl, "flock", flock)
    with layout.only_writer(tmp_path):
        pass
    assert "has no locks" in caplog.text
