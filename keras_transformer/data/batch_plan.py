"""Plans the batches: pairs of similar length go together (section 5.1).

Axes: B rows of a batch, S source length, T target length, N pairs. Lengths
count tokens, including the end token. There may be tens of millions of pairs,
so arrays over them are computed in chunks and kept in the smallest type.
"""

import functools
import math
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_transformer.config import TrainingConfig
from keras_transformer.data.records import TokenisedCorpus

# The growth of the ladder of lengths.
LENGTH_GROWTH = TrainingConfig.length_growth
# The shorter side of a batch is padded to one of these shares of the longer.
SHORT_SHARES = (0.75, 0.88, 1.0)
# Pairs at a time.
CHUNK = 1 << 20


class Batch(NamedTuple):
    """The plan of one batch."""

    rows: np.ndarray  # Integers (B,): pairs, -1 for a row of padding.
    source_length: int  # S.
    target_length: int  # T.


class Cut(NamedTuple):
    """The pairs of a batch, `start` to `stop - 1` in order of length."""

    start: int
    stop: int
    shape: tuple[int, int, int]  # (B, S, T)


class Epoch:
    """The batches of an epoch, each made on demand."""

    def __init__(self, pairs: np.ndarray, cuts: list[Cut]) -> None:
        self.pairs = pairs  # (N,), in ascending order of length.
        self.cuts = cuts  # In the epoch's order.

    def __len__(self) -> int:
        return len(self.cuts)

    def __getitem__(self, index: int) -> Batch:
        start, stop, (num_rows, source_length, target_length) = self.cuts[index]
        rows = np.full(num_rows, -1)
        rows[: stop - start] = self.pairs[start:stop]
        return Batch(rows, source_length, target_length)


class BatchPlan:
    """Plans which pairs share a batch, for every epoch.

    The plan is a pure function of its arguments and the epoch. Each epoch
    shuffles the whole corpus, sorts it by length, cuts it into batches and
    shuffles those. Every pair comes exactly once. All epochs have batches of
    the same shapes, since only pairs of equal padded lengths change places.

    To bound the set of shapes, a batch's longer side is padded to a ladder of
    lengths, the shorter to one of `SHORT_SHARES` of it, and rows of
    padding complete a batch that the ladder cuts short.

    Args:
        corpus: The pairs.
        batch_tokens: Bound of B·S and of B·T, including padding. A pair longer
            than that is a batch of its own.
        seed: Fixes the order.
        shuffle: Whether to shuffle; otherwise batches come shortest first.
        length_growth: Ratio of neighbours on the ladder, above 1.
        row_multiple: B is a multiple of it if the budget allows that, so that
            replicas get equal shares.
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
        self.corpus = corpus
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.shuffle = shuffle
        self.row_multiple = row_multiple
        lengths = corpus.source.lengths, corpus.target.lengths
        self._lengths = PaddedLengths(*lengths, length_growth)
        self._ranks, cells, counts = rank_cells(*lengths, self._lengths)
        self._cuts = self._cut(cells, counts)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._cuts)

    def epoch(self, epoch: int) -> Epoch:
        """Return the batches of an epoch, counted from 0, in order."""
        # The shuffle does not depend on the type of the numbers.
        size = len(self.corpus)
        pairs = np.arange(size, dtype=np.min_scalar_type(size))
        if self.shuffle:
            np.random.default_rng([self.seed, epoch]).shuffle(pairs)
        # Pairs of one rank keep their order.
        pairs = pairs[np.argsort(self._ranks[pairs], kind="stable")]
        return Epoch(pairs, [self._cuts[i] for i in self._order(epoch)])

    def shape(self, number: int) -> tuple[int, int, int]:
        """Return (B, S, T) of a batch, counted from 0 over all epochs."""
        epoch, index = divmod(number, len(self))
        return self._cuts[self._order(epoch)[index]].shape

    def shapes(self) -> list[tuple[int, int, int]]:
        """List every (B, S, T) that occurs, in ascending order."""
        return sorted({cut.shape for cut in self._cuts})

    def padding_waste(self) -> float:
        """Return the share of PAD among all positions of both sides."""
        positions = sum(b * (s + t) for _, _, (b, s, t) in self._cuts)
        return 1 - sum(self.corpus.num_tokens) / positions

    def checksum(self) -> str:
        """Tell this plan from others, and from another NumPy's shuffle."""
        canary = np.arange(997)
        np.random.default_rng([self.seed, 0]).shuffle(canary)
        cuts = [(start, stop, *shape) for start, stop, shape in self._cuts]
        known = 0
        for part in (self._ranks, np.array(cuts), self._order(0), canary):
            known = zlib.crc32(np.ascontiguousarray(part).data, known)
        return f"{known:08x}"

    def _order(self, epoch: int) -> np.ndarray:
        """Draw the order of the cuts in an epoch."""
        if not self.shuffle:
            return np.arange(len(self))
        # Not from the generator that shuffles the pairs: with many pairs that
        # takes long, and it does not affect the shapes.
        random = np.random.default_rng([self.seed, epoch, 1])
        return random.permutation(len(self))

    def _capacity(self, length: int) -> int:
        """Count the rows of `length` tokens in the budget, at least one."""
        rows = self.batch_tokens // length
        if rows >= self.row_multiple:
            rows -= rows % self.row_multiple
        return max(rows, 1)

    def _cut(self, cells: np.ndarray, counts: np.ndarray) -> list[Cut]:
        """Cut pairs, `counts` for each rank of `cells` (S, T), into batches."""
        longer = cells.max(axis=1).tolist()
        capacity = np.array([self._capacity(length) for length in longer])
        ends = np.cumsum(counts)
        shape = functools.cache(self._shape_for)
        cuts = []
        start = 0
        while start < ends[-1]:
            # The longest pair decides how many fit: the capacity falls as the
            # lengths grow.
            stop = int(np.minimum(ends, start + capacity).max())
            first = np.searchsorted(ends, start, side="right")
            last = np.searchsorted(ends, stop)
            longest = cells[first : last + 1].max(axis=0).tolist()
            rows = int(capacity[last])
            cuts.append(Cut(start, stop, shape(stop - start, rows, *longest)))
            start = stop
        return cuts

    def _shape_for(
        self, size: int, rows: int, source: int, target: int
    ) -> tuple[int, int, int]:
        """Return (B, S, T) for `size` pairs in a batch of up to `rows` rows."""
        # Halve the rows, so that a small rest is not mostly padding.
        while rows >= 2 * size and rows > self.row_multiple:
            rows = math.ceil(rows / 2 / self.row_multiple) * self.row_multiple
        key = self._lengths.keys(np.array(source), np.array(target))
        source, target = self._lengths.cells(key).tolist()
        return rows, source, target


class PaddedLengths:
    """Rounds lengths `(N,)` up to those that a batch may have.

    The ladder grows by `growth` and ends at the longest of all. A key stands
    for a rung of it, a share, and which side is longer.
    """

    def __init__(
        self, source: np.ndarray, target: np.ndarray, growth: float
    ) -> None:
        self.ladder = _ladder(int(max(source.max(), target.max())), growth)
        shorter = np.ceil(np.outer(self.ladder, SHORT_SHARES))
        self.shorter = shorter.astype(np.int64)  # (rungs, 3)
        lengths = np.arange(self.ladder[-1] + 1)
        self.rungs = np.searchsorted(self.ladder, lengths)  # Of every length.
        self.num_keys = 2 * self.shorter.size

    def keys(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the keys of lengths, in their shape."""
        rungs = self.rungs[np.maximum(source, target)]
        shorter = np.minimum(source, target)
        keys = rungs * len(SHORT_SHARES)
        for share in self.shorter.T[:-1]:
            keys += share[rungs] < shorter
        return 2 * keys + (source >= target)

    def cells(self, keys: np.ndarray) -> np.ndarray:
        """Return the padded lengths `(..., 2)`, S and T, of keys `(...)`."""
        rungs, shares = np.divmod(keys // 2, len(SHORT_SHARES))
        longer, shorter = self.ladder[rungs], self.shorter[rungs, shares]
        source_is_longer = keys % 2 == 1
        return np.stack(
            [
                np.where(source_is_longer, longer, shorter),
                np.where(source_is_longer, shorter, longer),
            ],
            axis=-1,
        )


def _ladder(longest: int, growth: float) -> np.ndarray:
    """List lengths from 1, each about `growth` times the one before."""
    lengths = [1]
    while lengths[-1] < longest:
        lengths.append(max(lengths[-1] + 1, math.ceil(lengths[-1] * growth)))
    return np.array(lengths)


def rank_cells(
    source: np.ndarray, target: np.ndarray, lengths: PaddedLengths
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order the pairs of padded lengths so that neighbours are similar.

    Ranks go by the longer side. Within one length they go from long sources to
    long targets, and back within the next. Returns the rank of every pair
    `(N,)`, the (S, T) of every rank, and the number of pairs with it.
    """
    keys = np.empty(len(source), np.min_scalar_type(lengths.num_keys))
    counts = np.zeros(lengths.num_keys, np.int64)
    for chunk in _chunks(len(source)):
        keys[chunk] = lengths.keys(source[chunk], target[chunk])
        counts += np.bincount(keys[chunk], minlength=len(counts))
    filled = np.flatnonzero(counts)
    # Several keys may stand for one cell.
    cells, inverse = np.unique(
        lengths.cells(filled), axis=0, return_inverse=True
    )
    _, step = np.unique(cells.max(axis=1), return_inverse=True)
    excess = cells[:, 0] - cells[:, 1]
    order = np.lexsort((np.where(step % 2, excess, -excess), step))
    rank_of = np.zeros(lengths.num_keys, keys.dtype)
    rank_of[filled] = np.argsort(order)[inverse.reshape(-1)]
    for chunk in _chunks(len(source)):
        keys[chunk] = rank_of[keys[chunk]]
    counts = np.bincount(rank_of[filled], counts[filled]).astype(np.int64)
    return keys, cells[order], counts


def _chunks(size: int) -> Iterator[slice]:
    for start in range(0, size, CHUNK):
        yield slice(start, start + CHUNK)
