"""The end of memory, or of a disk: one sentence, and the job has failed."""

import errno
import os

import pytest
import tensorflow as tf

from keras_transformer.commands import command_line
from keras_transformer.machine import exhaustion

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
        with exhaustion.explained("rest"):
            raise error
    assert caught.value is error
