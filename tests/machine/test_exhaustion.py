"""The end of memory, or of a disk: one sentence, and the job has failed."""

import errno
import os

import pytest
import tensorflow as tf

from keras_transformer.commands import command_line
from keras_transformer.config import JobError
from keras_transformer.machine import exhaustion

# As TensorFlow passes it on.
FULL = tf.errors.ResourceExhaustedError(
    None, None, "{{function_node}} a/b.index; No space left on device [Op:Save]"
)


def run(error):
    def command():
        raise error

    return command_line.run(command)


@pytest.mark.parametrize(
    "error, sentence",
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b"),
            "a/b: No space left on device; free space or choose a place that ",
        ),
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            "Disk quota exceeded; free space or choose a place that can be ",
        ),
        # h5py knows no number.
        (
            OSError("Can't write data (errno = 28, No space left on device)"),
            "No space left on device; free space or choose a place that can ",
        ),
        (
            RuntimeError("Can't decrement id (No space left on device, 28)"),
            "No space left on device; free space or choose a place that can ",
        ),
        (FULL, "No space left on device; free space or choose a place that "),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "OOM when allocating tensor with shape[7]\nHint"
            ),
            "Out of memory (OOM when allocating tensor with shape[7]); end ",
        ),
        (
            tf.errors.InternalError(None, None, "CUDA_ERROR_OUT_OF_MEMORY: 2"),
            "Out of memory (CUDA_ERROR_OUT_OF_MEMORY: 2); end other programs",
        ),
        # Errors of starting on a full card, and of its matrix products.
        (
            tf.errors.InternalError(None, None, "Status: out of memory"),
            "Out of memory (Status: out of memory); end other programs",
        ),
        (
            tf.errors.InternalError(None, None, "CUBLAS_STATUS_ALLOC_FAILED"),
            "Out of memory (CUBLAS_STATUS_ALLOC_FAILED); end other programs",
        ),
        (
            MemoryError(),
            "Out of memory; end other programs that need the memory",
        ),
    ],
)
def test_a_job_that_runs_out_fails_with_one_sentence(error, sentence, capsys):
    assert run(error) == command_line.FAILED
    said = capsys.readouterr().err
    assert said.startswith(f"error: {sentence}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, os.strerror(errno.EROFS), "a/b"),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a/b"),
    ],
)
def test_a_place_that_cannot_be_written_is_a_wrong_argument(error, capsys):
    assert run(error) == command_line.WRONG
    assert capsys.readouterr().err.startswith("error: a/b: ")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No space left on device"),
        tf.errors.InvalidArgumentError(None, None, "shapes differ"),
        tf.errors.InternalError(None, None, "no kernel"),
    ],
)
def test_other_errors_are_left_as_they_are(error):
    with pytest.raises(type(error)) as caught:
        with exhaustion.explained("rest"):
            raise error
    assert caught.value is error


FULL_DISK = (errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "error, sentence",
    [
        (OSError(*FULL_DISK), "there: No space left on device; free"),
        (OSError(*FULL_DISK, "here"), "here: No space left on device; free"),
        (MemoryError(), "Out of memory; rest more[.]$"),
    ],
)
def test_the_place_of_a_disk_and_what_takes_less_memory_are_told(
    error, sentence
):
    with pytest.raises(JobError, match=f"^{sentence}"):
        with exhaustion.explained("rest more", "there"):
            raise error
