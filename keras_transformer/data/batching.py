"""Batches of pairs of similar length (section 5.1).

Axes: B rows of a batch, S source length, T target length. Lengths count
tokens, the end token included.
"""

import functools
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer import config
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer

# The shorter side of a batch is padded to one of these shares of the longer.
SHORT_SHARES = (0.75, 0.88, 1.0)


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
        length_growth: float = 1.06,
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


def batches(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    batch_tokens: int = 4_096,
    *,
    max_length: int | None = 256,
    seed: int = 1,
    shuffle: bool = True,
) -> tf.data.Dataset:
    """Batch pairs of texts for `model.fit`, an epoch each time it is iterated.

    Args:
        pairs: Source and target texts; read once, here.
        tokenizer: Vocabulary of both sides.
        batch_tokens: Budget of source tokens, and equally of target tokens, in
            a batch, padding included.
        max_length: Pairs with a longer side, in tokens with the end token, or
            with an empty side, are dropped; None keeps all, as for validation.
        seed: Fixes the order, which is another one in every epoch.
        shuffle: Whether to shuffle; without it batches come shortest first.

    Returns:
        Dataset of `((source (B, S), target_in (B, T)), target_out (B, T))`,
        int32, as from `stream`; its `len` is the steps of an epoch.

    Raises:
        UserError: If no pair is left.
        ValueError: If `batch_tokens` is below 1.
    """
    with tempfile.TemporaryDirectory() as folder:
        records = TokenisedCorpus.build(
            pairs, tokenizer, os.path.join(folder, "records"), max_length
        ).in_memory()
    plan = BatchPlan(records, batch_tokens, seed, shuffle)
    epoch = itertools.count()
    current = plan.epoch(next(epoch))

    def batch(number: int) -> Batch:
        nonlocal current
        planned = current[number]
        # An iteration that was given up begins the same epoch again.
        if number + 1 == len(plan):
            current = plan.epoch(next(epoch))
        return planned

    numbers = tf.data.Dataset.range(len(plan))
    return _dataset(records, numbers, batch)


def stream(
    plan: BatchPlan,
    cursor: tuple[int, int] = (0, 0),
) -> tf.data.Dataset:
    """Stream training batches without end.

    Args:
        plan: Which pairs meet.
        cursor: Epoch and batch of the first element, both from 0. After `n`
            updates from the start, `divmod(n, len(plan))`.

    Returns:
        Dataset of `((source (B, S), target_in (B, T)), target_out (B, T))`,
        int32. `target_in` is BOS and the target without EOS, `target_out` the
        target with EOS; PAD fills both, and rows of padding throughout.
    """
    first_epoch, first_batch = cursor
    planned = functools.lru_cache(maxsize=1)(plan.epoch)

    def batch(number: int) -> Batch:
        epoch, index = divmod(number, len(plan))
        return planned(epoch)[index]

    first = first_epoch * len(plan) + first_batch
    return _dataset(plan.corpus, tf.data.Dataset.counter(first), batch)


def evaluation_batches(
    corpus: TokenisedCorpus, batch_tokens: int
) -> tf.data.Dataset:
    """Stream every pair once, shortest first, in the form of `stream`."""
    plan = BatchPlan(corpus, batch_tokens, shuffle=False)
    numbers = tf.data.Dataset.range(len(plan))
    return _dataset(corpus, numbers, plan.epoch(0).__getitem__)


def _dataset(
    corpus: TokenisedCorpus,
    numbers: tf.data.Dataset,
    batch: Callable[[int], Batch],
) -> tf.data.Dataset:
    """Assemble the batch of every number, a few ahead of their use."""

    def assemble(number: tf.Tensor) -> tuple:
        # Not `from_generator`, which complains when Python exits before it.
        source, target_in, target_out = tf.numpy_function(
            lambda number: _assemble(corpus, batch(int(number))),
            [number],
            [tf.int32] * 3,
        )
        for ids in (source, target_in, target_out):
            ids.set_shape((None, None))
        return (source, target_in), target_out

    dataset = numbers.map(assemble)
    options = tf.data.Options()
    # `rows` shares the batches out; tf.distribute shall not do it again.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    # There is nothing to tune, and the thread that would keeps whoever drops
    # the iterator waiting, for up to a minute.
    options.autotune.enabled = False
    return dataset.prefetch(8).with_options(options)


def _assemble(
    corpus: TokenisedCorpus, batch: Batch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    source = corpus.source.padded(batch.rows, batch.source_length)
    target_out = corpus.target.padded(batch.rows, batch.target_length)
    target_in = np.full_like(target_out, config.PAD_ID)
    target_in[batch.rows >= 0, 0] = config.BOS_ID
    target_in[:, 1:] = target_out[:, :-1]
    target_in[target_in == config.EOS_ID] = config.PAD_ID
    return source, target_in, target_out
