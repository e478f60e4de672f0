"""Files and folders are whole or absent, whatever interrupts the writing."""

import errno
import os
import pathlib
import signal

import pytest

from keras_transformer.config import UserError
from keras_transformer.exporting.serving_kit import version_path
from keras_transformer.machine import files

FSYNC = os.fsync


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_file_that_is_interrupted_leaves_what_was_there(tmp_path, error):
    (tmp_path / "a").write_text("old")
    with pytest.raises(error), files.open_whole(tmp_path / "a") as file:
        file.write(b"new")
        raise error
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("number", "is_named"), [(errno.ENOSPC, True), (errno.EIO, False)]
)
def test_what_fills_the_disk_is_called_by_its_name(tmp_path, number, is_named):
    """Other errors inside the block may have nothing to do with the file."""
    with pytest.raises(OSError) as caught, files.whole(tmp_path / "a"):
        raise OSError(number, os.strerror(number))  # As from writing.
    assert (caught.value.filename == str(tmp_path / "a")) == is_named


def test_two_processes_that_write_the_same_do_not_meet(tmp_path):
    with files.open_whole(tmp_path / "a") as file:
        file.write(b"ours")
        process = os.fork()
        if not process:
            with files.open_whole(tmp_path / "a") as other:
                other.write(b"other")
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        assert (tmp_path / "a").read_bytes() == b"other"
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"ours"


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


def test_an_interrupt_between_two_renames_brings_the_folder_back(
    tmp_path, monkeypatch
):
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
    path = version_path(tmp_path, 1795759200123456789)
    assert path.name == "1795759200123456789"
    assert version_path(tmp_path, 2**63 - 1).name == "9223372036854775807"
    with pytest.raises(UserError, match="`version` .* below 2.63, received"):
        version_path(tmp_path, 2**63)


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    for text in ("old", "new"):
        with files.whole(tmp_path / "a") as partial:
            partial.mkdir()
            (partial / text).write_text(text)
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["new"]
    # One that is interrupted leaves the one before.
    with pytest.raises(ZeroDivisionError), files.whole(tmp_path / "a") as path:
        path.mkdir()
        _ = 1 / 0
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


def refuse_to_flush(monkeypatch, number, is_refused):
    def fsync(descriptor):
        if is_refused(pathlib.Path(f"/proc/self/fd/{descriptor}")):
            raise OSError(number, os.strerror(number))
        FSYNC(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)


@pytest.mark.parametrize(
    ("number", "is_refused"),
    [(errno.EIO, pathlib.Path.is_dir), (errno.EINVAL, pathlib.Path.is_file)],
)
def test_what_could_not_be_flushed_is_an_error(
    tmp_path, monkeypatch, number, is_refused
):
    refuse_to_flush(monkeypatch, number, is_refused)
    with pytest.raises(OSError, match=os.strerror(number)):
        files.write_text(tmp_path / "a", "text")
    # A file system that flushes no folder is written to.
    refuse_to_flush(monkeypatch, errno.EINVAL, pathlib.Path.is_dir)
    files.write_text(tmp_path / "b", "text")
    assert (tmp_path / "b").read_text() == "text"


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


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("none/a", FileNotFoundError, "{folder}/none/a"),
        ("", UserError, "{folder} is a folder; choose another name"),
    ],
)
def test_an_error_names_what_somebody_asked_for(tmp_path, name, error, message):
    message = message.format(folder=tmp_path)
    with (
        pytest.raises(error, match=message),
        files.open_whole(tmp_path / name),
    ):
        pass


def test_what_a_process_left_is_removed_and_nothing_else(tmp_path, caplog):
    (tmp_path / "kept").write_text("")
    (tmp_path / ".partial-file").write_text("")
    (tmp_path / ".partial-old-folder").mkdir()
    (tmp_path / ".partial-old-folder" / "inside").write_text("")
    with caplog.at_level("INFO"):
        files.remove_leftovers(tmp_path, tmp_path / "nowhere")
    assert names(tmp_path) == ["kept"]
    assert caplog.text.count("left by a process that ended") == 2
