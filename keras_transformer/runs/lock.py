"""Locks a run directory, so that one process at a time writes.

The kernel locks a file in the directory, and releases it when the process ends,
however it ends. Readers need no lock. Removing the directory removes the file
too, so the holder looks again before it writes.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from keras_transformer.config import JobError, UserError
from keras_transformer.runs.layout import LOCK_FILE

# If nobody can write, no lock is needed.
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
ATTEMPTS = 100
# File systems without locks.
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

# The locks of this process, by the path of the locked file.
_held: dict[pathlib.Path, int] = {}

logger = logging.getLogger("keras_transformer")


@contextlib.contextmanager
def only_writer(run_dir: str | os.PathLike) -> Iterator[None]:
    """Hold a run directory, creating it if it is missing.

    A new directory that stays empty is removed again.

    Raises:
        UserError: If another process holds it; it says which, and since when.
    """
    run_dir = pathlib.Path(run_dir)
    is_new = not run_dir.exists()
    lock = _take(run_dir)
    path = run_dir / LOCK_FILE
    if lock is not None:
        _held[path] = lock
    try:
        yield
    finally:
        if lock is not None:
            del _held[path]
            # In this order, a process that has opened the file meanwhile sees
            # that it is no longer the one in the directory.
            if _is_at(lock, path):
                path.unlink()
            os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):  # Not empty.
                run_dir.rmdir()


def check(run_dir: str | os.PathLike) -> None:
    """Check that a directory that this process holds is still the same one.

    Raises:
        JobError: If it was removed, moved or begun anew.
    """
    path = pathlib.Path(run_dir) / LOCK_FILE
    if path in _held and not _is_at(_held[path], path):
        raise JobError(
            f"{path} no longer belongs to this training: somebody removed or "
            "moved the directory, or began it anew; this training ends and "
            "writes nothing there."
        )


def _take(run_dir: pathlib.Path) -> int | None:
    """Lock the file; return its descriptor, or None if locks fail."""
    path = run_dir / LOCK_FILE
    while (lock := _open(path)) is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UserError(
                f"{run_dir} is in use by {_holder(path)}; wait until it "
                "ends, or choose another folder."
            ) from None
        except OSError as error:
            os.close(lock)
            if error.errno not in _UNKNOWN:
                raise
            logger.warning(
                "The file system of %s has no locks (%s): make sure that "
                "nothing else writes there.",
                run_dir,
                error.strerror,
            )
            return None
        if _is_at(lock, path):
            _sign(lock)
            return lock
        os.close(lock)  # The last holder has removed this file.
    return None


def _open(path: pathlib.Path) -> int | None:
    """Open the file of the lock; return None if nobody can write it."""
    for attempt in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError):
            # The last holder has just removed the directory, or it is a link
            # to nothing.
            if attempt == ATTEMPTS - 1:
                raise
        except OSError as error:
            if error.errno not in _READ_ONLY or not path.parent.exists():
                raise
            break
    if path.exists() and os.access(path.parent, os.W_OK):
        return os.open(path, os.O_RDONLY)  # It is another user's.
    return None


def _is_at(lock: int, path: pathlib.Path) -> bool:
    """Return whether `path` names this file."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _sign(lock: int) -> None:
    """Write into the file who holds it."""
    holder = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    with contextlib.suppress(OSError):  # A full disk, or another's file.
        os.truncate(lock, 0)
        os.write(lock, json.dumps(holder).encode())


def _holder(path: pathlib.Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return (
            f"process {holder['process']} on {holder['host']} since "
            f"{holder['since']}"
        )
    except (OSError, ValueError):  # It has not signed yet.
        return "another process"
