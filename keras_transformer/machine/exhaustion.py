"""Turns errors of full memory and full disks into one sentence.

This module does not load TensorFlow; it knows its errors by their code.
"""

import contextlib
import os
from collections.abc import Iterator

from keras_transformer.config import JobError
from keras_transformer.machine import extras, files

_RESOURCE_EXHAUSTED = 8  # TensorFlow's code.
_NO_MEMORY = ("out of memory", "out_of_memory", "alloc_failed")  # CUDA's words.


def full_disk(error: Exception) -> str | None:
    """Find the system's words for a full disk or quota in an error, or None.

    Libraries pass them on in their own errors; h5py's may be a RuntimeError.
    """
    is_other = not isinstance(error, OSError | RuntimeError)
    if is_other and not hasattr(error, "error_code"):
        return None
    text = f"{getattr(error, 'strerror', None) or ''} {error}"
    reasons = map(os.strerror, files.FULL)
    return next((reason for reason in reasons if reason in text), None)


@contextlib.contextmanager
def explained(
    less: str, place: str | os.PathLike | None = None
) -> Iterator[None]:
    """Turn an error of full memory or a full disk into one sentence.

    `less` is advice on using less memory, the end of a sentence; `place` is
    named if an error of a full disk names no file.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ImportError):
            raise extras.missing_keras(error) or error from None
        if reason := full_disk(error):
            name = getattr(error, "filename", None) or place
            raise JobError(
                f"{f'{name}: ' if name else ''}{reason}; free space or choose "
                "a place that can be written, then run the same command again."
            ) from error
        if _is_memory_full(error):
            # The error's first line has the device.
            text = str(getattr(error, "message", error)).strip()
            text = text[max(text.find("OOM when"), 0) :].partition("\n")[0]
            where = f" ({text.partition(' [Op:')[0]})" if text else ""
            raise JobError(f"Out of memory{where}; {less}.") from error
        raise


def _is_memory_full(error: Exception) -> bool:
    code = getattr(error, "error_code", None)  # TensorFlow's.
    if code is None:
        return isinstance(error, MemoryError)
    # If a driver finds no memory, TensorFlow calls it an internal error.
    text = str(error).lower()
    return code == _RESOURCE_EXHAUSTED or any(x in text for x in _NO_MEMORY)
