"""Which pairs meet in which batch: those of similar length (section 5.1).

Axes: B rows of a batch, S source length, T target length, N pairs. Lengths
count tokens, the end token included.
"""

import math
from typing import NamedTuple

import numpy as np

from keras_transformer.data.records import TokenisedCorpus

# The shorter side of a batch is padded to one of these shares of the longer.
SHORT_SHARES = (0.75, 0.88, 1.0)
# The growth of the ladder of lengths, and the one for XLA, which compiles every
# shape: among those in `benchmarks/scale.md`, the least sum of compilations
# (15 s a shape) and computed padding over a training of 12 hours.
LENGTH_GROWTH = 1.06
XLA_LENGTH_GROWTH = 1.15


class Batch(NamedTuple):
    """The plan of one batch.

    Attributes:
        rows: Integer array `(B,)` of pairs, -1 for a row of padding.
        source_length: S.
        target_length: T.
    """

    rows: np.ndarray
    source_length: int
    target_length: int


class BatchPlan:
    """Which pairs meet in which batch, for every epoch.

    A pure function of its arguments and the epoch: each epoch shuffles the
    whole corpus, sorts it by length, cuts it into batches and shuffles those.
    Every pair comes exactly once. All epochs share their batches' shapes,
    since only pairs of equal padded lengths change places.

    To bound the set of shapes, a batch's longer side is padded to a ladder of
    lengths, the shorter to one of `SHORT_SHARES` of it, and rows of padding
    complete a batch that the ladder cuts short.

    Args:
        corpus: The pairs.
        batch_tokens: Bound of B·S and of B·T, padding included. A pair longer
            than that is a batch of its own.
        seed: Fixes the order.
        shuffle: Whether to shuffle; without it batches come shortest first.
        length_growth: Quotient of neighbours on the ladder, above 1. A larger
            one means fewer shapes and more padding.
        row_multiple: B is a multiple of it wherever the budget allows that
            many rows, so that replicas get equal shares.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        corpus: TokenisedCorpus,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        length_growth: float = LENGTH_GROWTH,
        row_multiple: int = 8,
    ) -> None:
        if min(batch_tokens, row_multiple) < 1 or length_growth <= 1:
            raise ValueError(
                "`batch_tokens` and `row_multiple` must be at least 1, "
                "`length_growth` above 1. Received: "
                f"batch_tokens={batch_tokens}, row_multiple={row_multiple}, "
                f"length_growth={length_growth}"
            )
        self.corpus = corpus
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.shuffle = shuffle
        self.row_multiple = row_multiple
        longest = np.maximum(corpus.source_lengths, corpus.target_lengths)
        self._ladder = _ladder(int(longest.max()), length_growth)
        source, target = self._padded_lengths(
            corpus.source_lengths, corpus.target_lengths
        )
        self._ranks, cells = _rank_cells(source, target)
        order = np.sort(self._ranks)
        self._cuts = self._cut(*cells[order].T)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._cuts)

    def epoch(self, epoch: int) -> list[Batch]:
        """List the batches of an epoch, counted from 0, in order."""
        pairs = np.arange(len(self.corpus))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(pairs)
        pairs = pairs[np.argsort(self._ranks[pairs], kind="stable")]
        batches = []
        for start, stop, (num_rows, source_length, target_length) in (
            self._cuts[i] for i in self._order(epoch)
        ):
            rows = np.full(num_rows, -1)
            rows[: stop - start] = pairs[start:stop]
            batches.append(Batch(rows, source_length, target_length))
        return batches

    def shape(self, number: int) -> tuple[int, int, int]:
        """Return (B, S, T) of a batch, counted from 0 over all epochs."""
        epoch, index = divmod(number, len(self))
        return self._cuts[self._order(epoch)[index]][2]

    def shapes(self) -> list[tuple[int, int, int]]:
        """List every (B, S, T) that occurs, in ascending order."""
        return sorted({shape for _, _, shape in self._cuts})

    def padding_waste(self) -> float:
        """Return the share of PAD among all positions of both sides."""
        positions = sum(b * (s + t) for _, _, (b, s, t) in self._cuts)
        tokens = self.corpus.source_lengths.sum(dtype=np.int64)
        tokens += self.corpus.target_lengths.sum(dtype=np.int64)
        return float(1 - tokens / positions)

    def _order(self, epoch: int) -> np.ndarray:
        """The order of the cuts in an epoch."""
        if not self.shuffle:
            return np.arange(len(self))
        # Not after the shuffle of the pairs, which takes long where they are
        # many and says nothing about shapes.
        random = np.random.default_rng([self.seed, epoch, 1])
        return random.permutation(len(self))

    def _padded_lengths(
        self, source: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Round `(N,)` lengths up to those that a batch may have."""
        longer = np.maximum(source, target)
        longer = self._ladder[np.searchsorted(self._ladder, longer)]
        steps = np.ceil(np.outer(longer, SHORT_SHARES)).astype(np.int64)
        too_short = steps < np.minimum(source, target)[:, None]
        shorter = steps[np.arange(len(steps)), too_short.sum(axis=1)]
        source_is_longer = source >= target
        return (
            np.where(source_is_longer, longer, shorter),
            np.where(source_is_longer, shorter, longer),
        )

    def _capacity(self, length: int) -> int:
        """How many rows of `length` tokens fit the budget, at least one."""
        rows = self.batch_tokens // length
        if rows >= self.row_multiple:
            rows -= rows % self.row_multiple
        return max(rows, 1)

    def _cut(
        self, source: np.ndarray, target: np.ndarray
    ) -> list[tuple[int, int, tuple[int, int, int]]]:
        """Cut padded lengths `(N,)`, the longer side ascending, into batches.

        Returns:
            The start, the stop and the shape (B, S, T) of each batch.
        """
        longer = np.maximum(source, target)
        fits = {length: self._capacity(length) for length in set(longer)}
        capacity = np.array([fits[length] for length in longer])
        cuts = []
        start = 0
        while start < len(source):
            window = capacity[start : start + capacity[start]]
            # The capacity falls as the lengths grow.
            size = int((np.arange(1, len(window) + 1) <= window).sum())
            stop = start + size
            (s,), (t,) = self._padded_lengths(
                source[start:stop].max(keepdims=True),
                target[start:stop].max(keepdims=True),
            )
            rows = int(capacity[stop - 1])
            # Halves, so that a small rest is not mostly padding.
            while rows >= 2 * size and rows > self.row_multiple:
                pieces = math.ceil(rows / 2 / self.row_multiple)
                rows = pieces * self.row_multiple
            cuts.append((start, stop, (rows, int(s), int(t))))
            start = stop
        return cuts


def _ladder(longest: int, growth: float) -> np.ndarray:
    """Lengths from 1, each about `growth` times the one before."""
    lengths = [1]
    while lengths[-1] < longest:
        lengths.append(max(lengths[-1] + 1, math.ceil(lengths[-1] * growth)))
    return np.array(lengths)


def _rank_cells(
    source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Order the pairs of padded lengths so that neighbours resemble.

    By the longer side; within it from long sources to long targets and, in
    every other step, back, so that steps meet where they are alike.

    Returns:
        The rank of every pair `(N,)`, and the (S, T) of every rank.
    """
    cells, inverse = np.unique(
        np.stack([source, target], axis=1), axis=0, return_inverse=True
    )
    source, target = cells.T
    _, step = np.unique(np.maximum(source, target), return_inverse=True)
    lean = np.where(step % 2, source - target, target - source)
    order = np.lexsort((lean, step))
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return ranks[inverse.reshape(-1)], cells[order]
