"""Draws a bounded random sample of any number of lines, kept in a file."""

import itertools
import os
from collections.abc import Generator, Iterable

import numpy as np

# Lines drawn at a time.
CHUNK = 8192
# All draws are below this.
DRAWS = 2**32


class Sample:
    """Lines of text: all of them, or a random sample in their order.

    Every line draws a number, and the lowest are the sample. A line that
    cannot be among them never reaches the file, so the file stays small.

    Args:
        path: The file to write.
        texts: Texts of one line or several.
        most: Lines in the sample.
        seed: Fixes the sample.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        texts: Iterable[str],
        most: int,
        seed: int = 1,
    ) -> None:
        self.path, limit = path, DRAWS
        lines = itertools.chain.from_iterable(
            text.split("\n") for text in texts
        )
        random = np.random.default_rng(seed)
        drawn = [np.zeros(0, np.uint32)]  # One for each line of the file.
        written = 0
        next_look = 2 * most
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            while chunk := list(itertools.islice(lines, CHUNK)):
                draws = random.integers(0, DRAWS, len(chunk), np.uint32)
                keep = draws < limit
                file.writelines(
                    f"{line}\n" for line in itertools.compress(chunk, keep)
                )
                drawn.append(draws[keep])
                written += len(drawn[-1])
                if written >= next_look:
                    limit = _limit(np.concatenate(drawn), most)
                    next_look += most
        self.draws = np.concatenate(drawn)
        self.limit = _limit(self.draws, most)

    def lines(self) -> Generator[str, None, None]:
        """Read the lines of the sample, without their ends."""
        with open(self.path, encoding="utf-8", newline="\n") as file:
            for line in itertools.compress(file, self.draws < self.limit):
                yield line.removesuffix("\n")


def _limit(draws: np.ndarray, most: int) -> int:
    """Find the value that at most `most` of the draws are below."""
    return int(np.partition(draws, most)[most]) if len(draws) > most else DRAWS
