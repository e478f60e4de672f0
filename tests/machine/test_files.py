"""Files and folders are whole or absent, whatever interrupts the writing."""

import contextlib
import errno
import os
import pathlib
import signal

import pytest

from keras_transformer.config import UserError
from keras_transformer.exporting.serving_kit import Export
from keras_transformer.machine import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_is_interrupted_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_text("old")
    with (
        pytest.raises(KeyboardInterrupt),
        files.open_whole(tmp_path / "a") as file,
    ):
        file.write(b"new")
        raise KeyboardInterrupt
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_what_a_killed_process_left_goes_when_the_same_is_written(tmp_path):
    process = os.fork()
    if not process:
        with files.whole(tmp_path / "a") as partial:
            partial.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    (left,) = names(tmp_path)
    assert left != "a"
    with files.open_whole(tmp_path / "b"):
        pass
    assert names(tmp_path) == [left, "b"]
    with files.open_whole(tmp_path / "a"):
        pass
    assert names(tmp_path) == ["a", "b"]


def test_what_a_living_process_writes_is_no_leftover(tmp_path):
    (reader, go), (written, ready) = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        with files.open_whole(tmp_path / "a") as file:
            file.write(b"hours of work")
            os.write(ready, b"x")
            os.read(reader, 1)
        os._exit(0)
    os.read(written, 1)
    files.remove_leftovers(tmp_path)
    os.write(go, b"x")
    assert os.waitpid(process, 0)[1] == 0
    assert (tmp_path / "a").read_bytes() == b"hours of work"


def test_an_interrupted_rename_brings_the_folder_back(tmp_path, monkeypatch):
    old, new = tmp_path / "a", tmp_path / "b"
    for each in (old, new):
        each.mkdir()
        (each / each.name).touch()
    rename = pathlib.Path.rename

    def interrupted(path, target):
        if path == new:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(pathlib.Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.give_name(new, old)
    assert names(tmp_path) == ["a", "b"] and names(old) == ["a"]


def test_a_version_may_be_the_time_in_nanoseconds_up_to_int64(tmp_path):
    path = Export(1795759200123456789).path(tmp_path)
    assert path.name == "1795759200123456789"
    assert Export(2**63 - 1).path(tmp_path).name == "9223372036854775807"
    with pytest.raises(UserError, match="`version`"):
        Export(2**63).path(tmp_path)


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    for text in ("old", "new"):
        with files.whole(tmp_path / "a") as partial:
            partial.mkdir()
            (partial / text).write_text(text)
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["new"]


def test_everything_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Otherwise a power cut could leave the name with half of the content."""
    seen = []
    monkeypatch.setattr(
        files.os, "fsync", lambda descriptor: seen.append(names(tmp_path))
    )
    with files.whole(tmp_path / "a") as partial:
        partial.mkdir()
        (partial / "b").write_text("")
    # The file, its folder, then the name of that.
    (partial,) = seen[0]
    assert partial.startswith(".partial-")
    assert seen == [[partial], [partial], ["a"]]


@pytest.mark.parametrize(
    "number, is_refused, is_error",
    [
        (errno.EIO, pathlib.Path.is_dir, True),
        (errno.EINVAL, pathlib.Path.is_file, True),
        # A file system that flushes no folder is written to.
        (errno.EINVAL, pathlib.Path.is_dir, False),
    ],
)
def test_what_could_not_be_flushed_is_an_error(
    tmp_path, monkeypatch, number, is_refused, is_error
):
    def fsync(descriptor):
        if is_refused(pathlib.Path(f"/proc/self/fd/{descriptor}")):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fsync)
    refused = pytest.raises(OSError, match=os.strerror(number))
    with refused if is_error else contextlib.nullcontext():
        files.write_text(tmp_path / "a", "text")
    assert is_error or (tmp_path / "a").read_text() == "text"


def test_a_link_is_followed_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with files.open_whole(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with files.open_whole(tmp_path / "pipe") as file:
        file.write(b"through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
