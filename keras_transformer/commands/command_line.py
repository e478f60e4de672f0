"""Reads a command line and runs its command, whatever the verb.

Logs, exit codes and errors of one sentence are alike for all verbs.
"""

import argparse
import gc
import logging
import os
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from keras_transformer.config import JobError, UserError
from keras_transformer.machine import devices
from keras_transformer.settings import nearest

DONE, FAILED, WRONG = 0, 1, 2

logger = logging.getLogger("keras_transformer")

_LESS_MEMORY = (
    "end other programs that need the memory, or ask for less at a time, such "
    "as a smaller `beam_size`"
)


class Parser(argparse.ArgumentParser):
    """Refuses wrong arguments in a sentence, without listing every flag."""

    def __init__(self, **options: Any) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=raw, **options)
        self.register("type", pathlib.Path, _path)

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"error: {message}. See {self.prog} --help.\n")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words; suggest the flag that an unknown one may stand for."""
        args, unknown = self.parse_known_args(words)
        if unknown:
            near = nearest(unknown[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return args


def _path(text: str) -> pathlib.Path:
    if not text:  # It would be the current folder.
        raise argparse.ArgumentTypeError("expected a path, received ''")
    return pathlib.Path(text)


def run(command: Callable[[], int | None]) -> int:
    """Run a command and turn its errors into a sentence and an exit code.

    Returns:
        0 done, 1 the job failed, 2 wrong arguments or input, 130 interrupted.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # Closed, as some init scripts do.
            setattr(sys, name, open(os.devnull, "r+"))
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    # Tracing makes millions of objects that stay; look through them less often.
    gc.set_threshold(50_000, 10, 10)
    try:
        with devices.explained(_LESS_MEMORY):
            code = command()
            sys.stdout.flush()
        return DONE if code is None else code
    except (UserError, JobError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG if isinstance(error, UserError) else FAILED
    except BrokenPipeError:
        # The reader of the pipe has gone, so there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        reason = " ".join(str(error.strerror or error).split())
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{reason}.", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def say_next(*words: object, program: str = "keras-transformer") -> None:
    """Log the command that comes next, if a person reads along."""
    if sys.stdout.isatty():
        logger.info("Next: %s", shlex.join([program, *map(str, words)]))


def quiet_tensorflow() -> None:
    """Import TensorFlow without its notices on standard error."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # C++ prints the first notices before it reads that level.
    standard_error = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            import tensorflow  # noqa: F401
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
    # What it logs from Python is not for the user either.
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    devices.let_memory_grow()
