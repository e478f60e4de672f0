"""Shared by all commands: logs, exit codes, errors as one sentence."""

import argparse
import errno
import gc
import itertools
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from keras_transformer.config import JobError, UserError
from keras_transformer.machine import exhaustion
from keras_transformer.settings import meant

DONE, FAILED, WRONG = 0, 1, 2

logger = logging.getLogger("keras_transformer")

_LESS_MEMORY = (
    "end other programs that need the memory, or ask for less at a time, such "
    "as a smaller --beam-size"
)


class Parser(argparse.ArgumentParser):
    """Refuses wrong arguments in a sentence, without listing every flag."""

    def __init__(self, **options: Any) -> None:
        self.flags: list[str] = []
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=raw, **options)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        self.flags += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(WRONG, f"error: {message}{end} See {self.prog} --help.\n")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words; look for unknown flags before others are missed."""
        for word in itertools.takewhile("--".__ne__, words):
            name = word.partition("=")[0]
            # Argparse takes what has a space for text.
            if not name.startswith("--") or name in self.flags or " " in word:
                continue
            if whole := [flag for flag in self.flags if flag.startswith(name)]:
                self.error(
                    f"expected a whole flag, received {name}; write "
                    f"{' or '.join(whole)}"
                )
            known = [flag[2:].replace("-", "_") for flag in self.flags]
            near = meant(name[2:].replace("-", "_"), known).rstrip(".")
            self.error(f"unrecognized arguments: {word}{self.named(near)}")
        return self.parse_args(words)

    def named(self, message: str) -> str:
        """Name flags instead of the Python arguments in backticks."""

        def called(found: re.Match) -> str:
            flag = f"--{found[1].replace('_', '-')}"
            return flag if flag in self.flags else found[0]

        return re.sub(r"`(\w+)`", called, message)


def run(command: Callable[[], int | None]) -> int:
    """Run a command and turn its errors into a sentence and an exit code.

    Returns:
        0 done, 1 the job failed, 2 wrong arguments or input, 130 interrupted.
    """
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    # Tracing makes millions of objects that stay; look through them less often.
    gc.set_threshold(50_000, 10, 10)
    try:
        with exhaustion.explained(_LESS_MEMORY):
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
        advice = ""
        if error.errno == errno.EROFS:
            advice = "; choose a place that can be written"
        print(f"error: {where}{reason}{advice}.", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def say_next(*words: object) -> None:
    """Log the command that comes next, if a person reads along."""
    if sys.stdout.isatty():
        command = shlex.join(["keras-transformer", *map(str, words)])
        logger.info("Next: %s", command)


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
    from keras_transformer.machine import devices

    devices.let_memory_grow()
