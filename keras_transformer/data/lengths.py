"""The lengths that batches have, and how pairs rank by them (section 5.1).

Axes: S source length, T target length, N pairs. Lengths count tokens, the end
token included. What is computed of tens of millions of pairs is computed in
chunks, and kept in the smallest type.
"""

import math
from collections.abc import Iterator

import numpy as np

# The shorter side of a batch is padded to one of these shares of the longer.
SHORT_SHARES = (0.75, 0.88, 1.0)
# Pairs at a time.
CHUNK = 1 << 20


class PaddedLengths:
    """Rounds lengths up to those that a batch may have.

    A key stands for a rung of the ladder, a share, and which side is longer.

    Args:
        source: Lengths of the source sides, `(N,)`; the longest of all ends
            the ladder.
        target: Lengths of the target sides, `(N,)`.
        growth: Of the ladder.
    """

    def __init__(
        self, source: np.ndarray, target: np.ndarray, growth: float
    ) -> None:
        longest = max(source.max(), target.max())
        self.ladder = _ladder(int(longest), growth)
        # (rungs, 3)
        self.shorter = np.ceil(np.outer(self.ladder, SHORT_SHARES)).astype(
            np.int64
        )
        # The rung of every length.
        self.rungs = np.searchsorted(
            self.ladder, np.arange(self.ladder[-1] + 1)
        )
        self.num_keys = 2 * self.shorter.size

    def keys(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Keys of lengths, in their shape."""
        rungs = self.rungs[np.maximum(source, target)]
        shorter = np.minimum(source, target)
        keys = rungs * len(SHORT_SHARES)
        for share in self.shorter.T[:-1]:
            keys += share[rungs] < shorter
        return 2 * keys + (source >= target)

    def cells(self, keys: np.ndarray) -> np.ndarray:
        """Padded lengths `(..., 2)`, S and T, of keys `(...)`."""
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
    """Lengths from 1, each about `growth` times the one before."""
    lengths = [1]
    while lengths[-1] < longest:
        lengths.append(max(lengths[-1] + 1, math.ceil(lengths[-1] * growth)))
    return np.array(lengths)


def rank_cells(
    source: np.ndarray, target: np.ndarray, lengths: PaddedLengths
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order the pairs of padded lengths so that neighbours resemble.

    By the longer side; within it from long sources to long targets and, in
    every other step, back, so that steps meet where they are alike.

    Returns:
        The rank of every pair `(N,)`, the (S, T) of every rank, and how many
        pairs have it.
    """
    keys = np.empty(len(source), smallest_type(lengths.num_keys))
    for chunk in _chunks(len(source)):
        keys[chunk] = lengths.keys(source[chunk], target[chunk])
    counts = np.zeros(lengths.num_keys, np.int64)
    for chunk in _chunks(len(source)):
        counts += np.bincount(keys[chunk], minlength=len(counts))
    found = np.flatnonzero(counts)
    # Several keys may stand for one cell.
    cells, inverse = np.unique(
        lengths.cells(found), axis=0, return_inverse=True
    )
    _, step = np.unique(cells.max(axis=1), return_inverse=True)
    excess = cells[:, 0] - cells[:, 1]
    lean = np.where(step % 2, excess, -excess)
    order = np.lexsort((lean, step))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    rank_of = np.zeros(lengths.num_keys, keys.dtype)
    rank_of[found] = ranks[inverse.reshape(-1)]
    for chunk in _chunks(len(source)):
        keys[chunk] = rank_of[keys[chunk]]
    counts = np.bincount(rank_of[found], counts[found]).astype(np.int64)
    return keys, cells[order], counts


def sorted_by_rank(pairs: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Sort pairs by rank, those of one rank in the order that they have."""
    counts = np.zeros(int(ranks.max()) + 1, np.int64)
    for chunk in _chunks(len(ranks)):
        counts += np.bincount(ranks[chunk], minlength=len(counts))
    free = np.cumsum(counts) - counts  # The next free place of each rank.
    result = np.empty_like(pairs)
    for chunk in _chunks(len(pairs)):
        of_chunk = ranks[pairs[chunk]]
        order = np.argsort(of_chunk, kind="stable")
        counts = np.bincount(of_chunk, minlength=len(free))
        # A run of each rank, moved to where the rank has come to.
        places = np.repeat(free - (np.cumsum(counts) - counts), counts)
        places += np.arange(len(order))
        result[places] = pairs[chunk][order]
        free += counts
    return result


def _chunks(size: int) -> Iterator[slice]:
    for start in range(0, size, CHUNK):
        yield slice(start, start + CHUNK)


def smallest_type(count: int) -> np.dtype:
    """The smallest type of integers for as many numbers from 0."""
    return np.min_scalar_type(max(count - 1, 0))
