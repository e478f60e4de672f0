"""The end of memory, or of the space on a disk, as one sentence.

Without TensorFlow, whose errors it knows by their code.
"""

import contextlib
import errno
import os
from collections.abc import Iterator

from keras_transformer.config import JobError

_FULL = {
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
}
_RESOURCE_EXHAUSTED = 8  # TensorFlow's code.
_NO_MEMORY = ("out of memory", "out_of_memory", "alloc_failed")  # CUDA's words.


def full_disk(error: Exception) -> str | None:
    """Read from an error that the disk or quota is full; None if it is not.

    Libraries pass the system's words on in errors of their own.
    """
    if not isinstance(error, OSError) and _code(error) is None:
        return None
    text = f"{getattr(error, 'strerror', None) or ''} {error}"
    return next((reason for reason in _FULL if reason in text), None)


@contextlib.contextmanager
def explained(
    less: str, place: str | os.PathLike | None = None
) -> Iterator[None]:
    """Turn the end of memory or of a disk into one sentence.

    Args:
        less: Advice, the end of a sentence: what needs less memory.
        place: What an error of a full disk is about that names no file.

    Raises:
        JobError: Where the work inside ends so.
    """
    try:
        yield
    except Exception as error:
        if reason := full_disk(error):
            name = getattr(error, "filename", None) or place
            raise JobError(
                f"{f'{name}: ' if name else ''}{reason}; free space or choose "
                "a place that can be written, then run the same command again."
            ) from error
        if isinstance(error, MemoryError) or _is_exhausted(error):
            raise JobError(f"Out of memory{_where(error)}; {less}.") from error
        raise


def _code(error: Exception) -> int | None:
    """TensorFlow's code of an error; None of others'."""
    return getattr(error, "error_code", None)


def _is_exhausted(error: Exception) -> bool:
    code = _code(error)
    # Where a driver finds none, TensorFlow calls it an internal error.
    text = str(error).lower()
    said = code is not None and any(words in text for words in _NO_MEMORY)
    return said or code == _RESOURCE_EXHAUSTED


def _where(error: Exception) -> str:
    """The first line of what was asked for, which names its device."""
    text = str(getattr(error, "message", error)).strip()
    start = max(text.find("OOM when"), 0)
    line = text[start:].partition("\n")[0].partition(" [Op:")[0]
    return f" ({line})" if line else ""
