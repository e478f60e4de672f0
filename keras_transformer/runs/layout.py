"""The files of a run directory, and its lock.

The configuration, the vocabulary and the final weights of a finished run are
enough to translate, score, evaluate and export.
"""

import contextlib
import fcntl
import os
import pathlib
import socket
import time
from collections.abc import Iterator

from keras_transformer.config import JobError, UserError, logger
from keras_transformer.data.pieces import TOKENIZER_FILE as TOKENIZER_FILE

CONFIG_FILE = "config.json"  # The model, its text and its settings.
FINAL_FILE = "final.weights.h5"  # To translate with: averaged, last or best.
RESULT_FILE = "result.json"  # Which those are, and what validation found.
CURVE_FILE = "curve.png"
RECORDS = "records"  # SPLIT/, the corpus as ids.
WATCHED_FILE = "watched.json"  # In RECORDS: the pairs to watch BLEU on.
CHECKPOINTS = "checkpoints"  # step-N/, and with `patience` best-N/.
LOGS = "logs"  # HISTORY_FILE, and TensorBoard's.
HISTORY_FILE = "history.csv"
EVALUATION = "evaluation"  # NAME/, texts and SCORES_FILE of a test set.
SCORES_FILE = "scores.json"
DISTILLED = "distilled"  # The text of a student.
EXPORTED = "exported"  # The model as `serve` needs it.
LOCK_FILE = "training.lock"  # The process that trains it now.


def has_begun(run_dir: str | os.PathLike) -> bool:
    """Return whether a run has weights, so that its settings are binding."""
    run_dir = pathlib.Path(run_dir)
    return (run_dir / CONFIG_FILE).exists() and (
        (run_dir / FINAL_FILE).exists() or bool(list_checkpoints(run_dir))
    )


def list_checkpoints(
    run_dir: str | os.PathLike, kind: str = "step"
) -> list[pathlib.Path]:
    """List checkpoints, or the `"best"` validated weights, oldest first."""
    paths = (pathlib.Path(run_dir) / CHECKPOINTS).glob(f"{kind}-*")
    return sorted([x for x in paths if x.name[5:].isdecimal()], key=step_of)


def step_of(path: pathlib.Path) -> int:
    """Return the update after which a checkpoint was written."""
    return int(path.name.rpartition("-")[2])


# The locked files of this process, by their paths.
_held: dict[pathlib.Path, int] = {}


@contextlib.contextmanager
def only_writer(run_dir: str | os.PathLike) -> Iterator[None]:
    """Hold a run directory, creating it; remove it again if it stays empty.

    The kernel locks a file in it, and lets go when the process ends, however
    it ends. Readers need no lock. A `UserError` says who holds it.
    """
    run_dir = pathlib.Path(run_dir)
    is_new, path = not run_dir.exists(), run_dir / LOCK_FILE
    _held[path] = lock = _take(path)
    try:
        yield
    finally:
        del _held[path]
        # In this order, a process that has opened the file meanwhile sees
        # that it is no longer the one in the directory.
        if _is_at(lock, path):
            path.unlink()
        os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):  # Not empty.
                run_dir.rmdir()


def check_lock(run_dir: str | os.PathLike) -> None:
    """Check that a directory that this process holds is still the same one."""
    path = pathlib.Path(run_dir) / LOCK_FILE
    if path in _held and not _is_at(_held[path], path):
        raise JobError(
            f"{path} no longer belongs to this training: the directory was "
            "removed, moved or begun anew; nothing is written there."
        )


def _take(path: pathlib.Path) -> int:
    """Lock the file, and return its descriptor."""
    while True:
        # Not `exist_ok`: another one may remove it while `mkdir` looks at it.
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.realpath(path.parent))
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # The last holder has just removed the folder.
        except NotADirectoryError:
            raise UserError(
                "Expected a folder for a run, received the file "
                f"{path.parent}; choose another `run_dir`."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.read(lock, 999).decode() or "another process"
            os.close(lock)
            raise UserError(
                f"{path.parent} is in use by {holder}; wait until it ends, or "
                "choose another folder."
            ) from None
        except OSError as error:
            said = "%s has no locks (%s): see that nothing else writes there."
            logger.warning(said, path.parent, error.strerror)
        if _is_at(lock, path):
            since = time.strftime("%Y-%m-%d %H:%M:%S %z")
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            with contextlib.suppress(OSError):  # A full disk.
                os.truncate(lock, 0)
                os.write(lock, f"{holder} since {since}".encode())
            return lock
        os.close(lock)  # The last holder has removed this file.


def _is_at(lock: int, path: pathlib.Path) -> bool:
    """Return whether `path` names this file."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
