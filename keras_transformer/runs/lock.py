"""One writer at a time for a run directory.

The lock is the kernel's, on a file in the directory: it ends with the process
that holds it, however that ends. Readers need none. Who removes the directory
removes the file too, so the holder looks again before it writes.
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

# Where nobody can write, nobody needs to be kept away.
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
ATTEMPTS = 100
# File systems without locks.
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

# What this process holds, by the path of the locked file.
_held: dict[pathlib.Path, int] = {}

logger = logging.getLogger("keras_transformer")


@contextlib.contextmanager
def only_writer(run_dir: str | os.PathLike) -> Iterator[None]:
    """Hold a run directory, which is made if it is missing.

    A directory that was made and stays empty goes again.

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
            # In this order: who has opened the file meanwhile sees that it
            # is no longer the one in the directory.
            if _is_at(lock, path):
                path.unlink()
            os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):  # Not empty.
                run_dir.rmdir()


def check(run_dir: str | os.PathLike) -> None:
    """Look whether a directory that this process holds is still the same one.

    Raises:
        JobError: If it was removed or moved since, or begun anew.
    """
    path = pathlib.Path(run_dir) / LOCK_FILE
    if path in _held and not _is_at(_held[path], path):
        raise JobError(
            f"{path} is not this training's any more: somebody removed or "
            "moved the directory, or began it anew; this training ends and "
            "writes nothing there."
        )


def _take(run_dir: pathlib.Path) -> int | None:
    """The descriptor of the locked file; None where there can be no lock."""
    path = run_dir / LOCK_FILE
    while True:
        lock = _open(path)
        if lock is None:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, path):
                _sign(lock)
                return lock
            os.close(lock)  # Of a file that the holder before has removed.
        except BlockingIOError:
            os.close(lock)
            raise UserError(
                f"{run_dir} is being trained by {_holder(path)}; wait for its "
                "end, or choose another `run_dir`."
            ) from None
        except OSError as error:
            os.close(lock)
            if error.errno not in _UNKNOWN:
                raise
            logger.warning(
                "The file system of %s has no locks (%s): take care that "
                "nothing else trains there.",
                run_dir,
                error.strerror,
            )
            return None


def _open(path: pathlib.Path) -> int | None:
    """Open the file of the lock; None where nobody could write it."""
    for attempt in range(ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError):
            # The holder before has just removed the directory, or else it is
            # a link to nothing.
            if attempt == ATTEMPTS - 1:
                raise
        except OSError as error:
            if error.errno not in _READ_ONLY or not path.parent.exists():
                raise
            break
    if path.exists() and os.access(path.parent, os.W_OK):
        return os.open(path, os.O_RDONLY)  # It is somebody else's.
    return None


def _is_at(lock: int, path: pathlib.Path) -> bool:
    """Whether it is this file that `path` names."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _sign(lock: int) -> None:
    """Say who holds it."""
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
