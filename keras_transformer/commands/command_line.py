"""Reads a command line and runs its command, whatever the verb.

Words such as `@FILE` and `@RECIPE` stand for the arguments in a file, which
holds words as a shell reads them, and comments after a #. The recipes are the
paper's trainings, in the folder `recipes` of the package. Logs, exit codes and
errors of one sentence are alike for all verbs.
"""

import argparse
import gc
import itertools
import logging
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from keras_transformer.config import JobError, UserError
from keras_transformer.machine import exhaustion
from keras_transformer.settings import nearest

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
        self.register("type", pathlib.Path, _path)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*names, **options)
        self.flags += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, f"error: {message}. See {self.prog} --help.\n")

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse words; look for unknown flags before others are missed."""
        for word in itertools.takewhile("--".__ne__, words):
            name = word.partition("=")[0]
            # Argparse takes what has a space for text.
            if name[:2] == "--" and name not in self.flags and " " not in word:
                near = nearest(name, self.flags)
                self.error(f"unrecognized arguments: {word}{near}")
        return self.parse_args(words)

    def named(self, message: str) -> str:
        """Name flags instead of the Python arguments in backticks."""

        def called(match: re.Match) -> str:
            flag = f"--{match[1].replace('_', '-')}"
            return flag if flag in self.flags else match[0]

        return re.sub(r"`(\w+)`", called, message)


def _path(text: str) -> pathlib.Path:
    if not text:  # It would be the current folder.
        raise argparse.ArgumentTypeError("expected a path, received ''")
    return pathlib.Path(text)


def with_files(argv: list[str]) -> list[str]:
    """Replace each `@FILE` by the arguments in the file.

    After `@` comes the path of a file or, if there is no such file, the name of
    a recipe, with or without its `.args`. A `--corpus` among the other words
    stands instead of those in files, and one in a later file instead of those
    in earlier ones.
    """
    arguments: list[str] = []
    has_corpus = any(map(_names_corpus, argv))
    for argument in reversed(argv):
        words = [argument]
        if argument.startswith("@"):
            words = _read(argument[1:])
            if has_corpus:
                words = _without_corpora(words)
            has_corpus = has_corpus or any(map(_names_corpus, words))
        arguments[:0] = words
    return arguments


def _names_corpus(word: str) -> bool:
    return word.partition("=")[0] == "--corpus"


def _without_corpora(words: list[str]) -> list[str]:
    # Of all flags only `--corpus` accumulates; later ones are to replace it.
    kept, rest = [], iter(words)
    for word in rest:
        if not _names_corpus(word):
            kept.append(word)
        elif "=" not in word:
            next(rest, None)
    return kept


def _read(name: str) -> list[str]:
    """Split a file or a recipe into words."""
    from keras_transformer.training.request import RECIPE_SUFFIX, recipes

    known, recipe = recipes(), name.removesuffix(RECIPE_SUFFIX)
    path = pathlib.Path(name)
    try:
        # Windows may put a byte-order mark before the text.
        is_recipe = recipe in known and not path.is_file()
        text = known[recipe] if is_recipe else path.read_text("utf-8-sig")
        return shlex.split(text, comments=True)
    except OSError as error:
        raise UserError(
            f"Expected a file of arguments or a recipe, received @{name} "
            f"({error.strerror}); the recipes are {', '.join(known)}."
        ) from None
    except ValueError as error:
        raise UserError(
            f"Expected arguments and # comments in {name}, found something "
            f"else ({error}); correct the file."
        ) from None


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
        print(f"error: {where}{reason}.", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def say_next(*words: object, program: str = "keras-transformer") -> None:
    """Log the command that comes next, if a person reads along."""
    if sys.stdout.isatty():
        command = shlex.join([program, *map(str, words)])
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
