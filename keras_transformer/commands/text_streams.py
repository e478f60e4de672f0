"""Opens the texts of a command line: files or streams, whole or not at all."""

import contextlib
import pathlib
import select
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from keras_transformer.config import UserError, logger
from keras_transformer.data.lines import open_file, read_lines
from keras_transformer.machine import files
from keras_transformer.translation.display import SentenceDisplay
from keras_transformer.translation.unfinished import Unfinished, unfinished

# Seconds after which a pipe that says nothing waits for an answer.
_SILENCE = 0.5


class Pipe:
    """Standard input, which may wait for answers before it says more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._came = self._taken = 0

    def read1(self, size: int) -> bytes:
        """Read what there is, as a file does."""
        block = self._file.read1(size)  # type: ignore[attr-defined]
        self._came += block.count(b"\n")
        return block

    def waits(self) -> bool:
        """Count a line as taken; return whether for now it is the last."""
        self._taken += 1
        if self._taken < self._came or self._file.seekable():
            return False
        return not select.select([self._file], [], [], _SILENCE)[0]


def open_input(
    path: pathlib.Path | None, stack: contextlib.ExitStack, flag: str
) -> tuple[Any, str, int | None]:
    """Open the text to translate: a file, or standard input for None.

    Return it, its name for errors, and the number of its lines if it can be
    read twice.
    """
    if path is None:
        if sys.stdin.isatty():
            logger.info("Reading standard input up to Ctrl-D.")
        return Pipe(sys.stdin.buffer), "standard input", None
    file = stack.enter_context(open_file(path, flag))
    total = None
    if file.seekable():
        # This finds bad bytes before the first line is translated.
        total = sum(1 for _ in read_lines(file, str(path)))
        file.seek(0)
    return file, str(path), total


def open_pairs(
    one: pathlib.Path | None,
    one_flag: str,
    other: pathlib.Path,
    other_flag: str,
    stack: contextlib.ExitStack,
) -> tuple[Iterator[tuple[str, str]], int | None]:
    """Open two texts that belong together line by line, as `open_input` does.

    Return the pairs of lines and, if it can be known, their number. That one
    has more lines than the other may show only at the end of the pairs.
    """
    file, name, total = open_input(one, stack, one_flag)
    other_file, other_name, other_total = open_input(other, stack, other_flag)
    if None not in (total, other_total) and total != other_total:
        raise UserError(
            f"Expected as many lines in {one_flag} and {other_flag}, "
            f"received {total:,} and {other_total:,}; align the files."
        )

    def pairs() -> Iterator[tuple[str, str]]:
        sides = read_lines(file, name), read_lines(other_file, other_name)
        try:
            yield from zip(*sides, strict=True)
        except ValueError as error:
            longer = one_flag if "shorter" in str(error) else other_flag
            raise UserError(
                f"Expected as many lines in {one_flag} as in {other_flag}, "
                f"received more in {longer}; align the files."
            ) from None

    return pairs(), total


class _Stream:
    """Standard output, or a pipe: nothing of it can be taken up later."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, about: Any, lines: Iterable[bytes]) -> bool:
        """Write the lines of a chunk, as `Unfinished` keeps them."""
        self._file.writelines(lines)
        self._file.flush()
        return False


def check_new(path: pathlib.Path) -> None:
    """Refuse an output that is there, since it may be an input."""
    if path.is_file() or not path.parent.is_dir():
        raise UserError(
            "Expected a new file as `output`, in a folder that exists, "
            f"received {path}; choose another name."
        )


@contextlib.contextmanager
def open_output(path: pathlib.Path | None) -> Iterator[Unfinished | _Stream]:
    """Open a new file, which appears once it is complete, or standard output.

    What is done is kept beside the file until then; a second start goes on.
    """
    if path is None:
        yield _Stream(sys.stdout.buffer)
        return
    check_new(path)
    if path.exists():  # A pipe, or /dev/null; a folder is refused.
        with files.open_whole(path) as file:
            yield _Stream(file)
        return
    with unfinished(path) as kept:
        yield kept
        with files.open_whole(path) as file:
            file.writelines(kept.lines())


def open_display(
    output: pathlib.Path | None, total: int | None, stack: contextlib.ExitStack
) -> SentenceDisplay:
    """Show the progress, without a bar where the results are on the screen."""
    on_screen = not output and sys.stdout.isatty()
    return stack.enter_context(SentenceDisplay(total, bar=not on_screen))
