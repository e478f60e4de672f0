"""The devices, GPUs made up, and the end of their memory or of a disk."""

import errno
import os

import pytest
import tensorflow as tf

from keras_transformer.commands import command_line
from keras_transformer.machine import devices

GPUS = ["GPU:0", "GPU:1"]


def test_commands_let_the_memory_of_all_gpus_grow(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: GPUS)
    grown = []
    monkeypatch.setattr(
        tf.config.experimental,
        "set_memory_growth",
        lambda gpu, yes: grown.append((gpu, yes)),
    )
    command_line.quiet_tensorflow()
    assert grown == [(gpu, True) for gpu in GPUS]


@pytest.mark.parametrize(
    "quota, cores",
    [("", 12), ("max 100000\n", 12), ("250000 100000\n", 3)],
)
def test_a_container_has_the_cores_of_its_quota(
    tmp_path, monkeypatch, caplog, quota, cores
):
    caplog.set_level("INFO", "keras_transformer")
    path = tmp_path / "cpu.max"
    path.write_text(quota)
    monkeypatch.setattr(devices, "QUOTA", path)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: range(12))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    assert devices.cores() == cores
    devices.log_devices()
    assert caplog.messages == [f"No GPU: computing on {cores} CPU cores."]


@pytest.mark.parametrize(
    "flags, instructions",
    [
        ("flags\t: avx512f avx512bw avx512dq avx512vl", ["AVX-512"]),
        ("flags\t: avx512_vnni avx512bw avx512dq", ["VNNI"]),
        ("flags : avx2 avx512f", []),
        ("Features : asimd", []),
    ],
)
def test_the_instructions_of_a_processor_are_known(
    tmp_path, monkeypatch, flags, instructions
):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(devices, "PROCESSORS", path)
    path.write_text(f"processor : 0\n{flags}\n")
    assert list(filter(devices.has, devices.INSTRUCTIONS)) == instructions


FULL_DISK = (errno.ENOSPC, os.strerror(errno.ENOSPC))


def exhausted(message):
    return tf.errors.ResourceExhaustedError(None, None, message)


def internal(message):
    return tf.errors.InternalError(None, None, message)


def run(error):
    def command():
        raise error

    return command_line.run(command)


@pytest.mark.parametrize(
    "error, sentence",
    [
        (OSError(*FULL_DISK, "a/b"), "a/b: No space left on device"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "Disk quota exceeded"),
        # h5py knows no number.
        (OSError(f"No data (errno = 28, {FULL_DISK[1]})"), FULL_DISK[1]),
        # As TensorFlow passes it on.
        (exhausted(f"{{{{node}}}} a; {FULL_DISK[1]} [Op:Save]"), FULL_DISK[1]),
        (exhausted("OOM when here\nHint"), "Out of memory (OOM when here)"),
        (internal("CUDA_ERROR_OUT_OF_MEMORY: 2"), "Out of memory (CUDA_ERROR"),
        (MemoryError(), "Out of memory"),
    ],
)
def test_a_job_that_runs_out_fails_with_one_sentence(error, sentence, capsys):
    assert run(error) == command_line.FAILED
    said = capsys.readouterr().err
    assert said.startswith(f"error: {sentence}") and said.count("\n") == 1


def test_a_place_that_cannot_be_written_is_a_wrong_argument(capsys):
    error = OSError(errno.EROFS, os.strerror(errno.EROFS), "a/b")
    assert run(error) == command_line.WRONG
    assert capsys.readouterr().err.startswith("error: a/b: ")


def test_other_errors_are_left_as_they_are():
    error = internal("no kernel")
    with pytest.raises(type(error)) as caught:
        with devices.explained("rest"):
            raise error
    assert caught.value is error
