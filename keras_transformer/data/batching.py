"""Token records on disk, and batches of pairs of similar length (section 5.1).

Axes: B rows of a batch, S source length, T target length. Lengths count
tokens, the end token included.
"""

import functools
import itertools
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer import config
from keras_transformer.data.tokenizer import Tokenizer

# Pairs tokenised at a time.
CHUNK = 8192
RECORDS_FILE = "records.json"
# The shorter side of a batch is padded to one of these shares of the longer.
SHORT_SHARES = (0.75, 0.88, 1.0)


class Side(NamedTuple):
    """One language of a corpus, all sentences end to end.

    Attributes:
        ids: Integer array `(sum of lengths,)`, perhaps mapped from a file.
        lengths: Integer array `(pairs,)`, tokens of each sentence.
        starts: Integer array `(pairs,)`, where each begins in `ids`.
    """

    ids: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray

    @classmethod
    def load(cls, stem: pathlib.Path, dtype: str) -> "Side":
        lengths = np.fromfile(f"{stem}.lengths", np.int32)
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        ids = np.asarray(np.memmap(f"{stem}.ids", dtype, mode="r"))
        return cls(ids, lengths, starts)

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Gather sentences, PAD after each; a row of -1 is PAD throughout.

        Returns:
            int32 array `(len(rows), length)`.
        """
        columns = np.arange(length)
        lengths = np.where(rows < 0, 0, self.lengths[rows])
        filled = columns < lengths[:, None]
        batch = np.full(filled.shape, config.PAD_ID, np.int32)
        batch[filled] = self.ids[(self.starts[rows][:, None] + columns)[filled]]
        return batch


class TokenisedCorpus:
    """Aligned token records, so that no epoch waits for the tokenizer.

    Attributes:
        source: The source side.
        target: The target side.
        dropped: Pairs left out because a side had too many tokens.
        empty: Pairs left out because a side had no text.
    """

    def __init__(
        self, source: Side, target: Side, dropped: int = 0, empty: int = 0
    ) -> None:
        self.source = source
        self.target = target
        self.dropped = dropped
        self.empty = empty

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def source_lengths(self) -> np.ndarray:
        return self.source.lengths

    @property
    def target_lengths(self) -> np.ndarray:
        return self.target.lengths

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[str, str]],
        tokenizer: Tokenizer,
        directory: str | os.PathLike,
        max_length: int | None = None,
        fingerprint: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> "TokenisedCorpus":
        """Tokenise `pairs` into `directory`, or reuse what is there.

        Written under a temporary name and renamed: a directory of that name
        is complete.

        Args:
            pairs: Source and target texts; not touched on reuse.
            tokenizer: Vocabulary of both sides.
            directory: Where the records go.
            max_length: Pairs with a longer side, or with a side without
                text, are dropped and counted. `None` keeps every pair.
            fingerprint: Names the text and the vocabulary. Records with the
                same fingerprint and `max_length` are reused, others replaced.
            progress: Called with the number of pairs read so far.

        Raises:
            UserError: If no pair is left, or `directory` holds something
                other than records.
        """
        directory = pathlib.Path(directory)
        key = {"fingerprint": fingerprint, "max_length": max_length}
        if directory.exists():
            found = _read_header(directory)
            if key.items() <= found.items():
                return cls.load(directory)
        partial = directory.with_name(directory.name + ".tmp")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            header = _write_records(
                pairs, tokenizer, partial, max_length, progress
            )
            (partial / RECORDS_FILE).write_text(json.dumps({**key, **header}))
            if directory.exists():
                shutil.rmtree(directory)
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "TokenisedCorpus":
        """Map the records that `build` wrote.

        Raises:
            UserError: If `directory` holds no records.
        """
        directory = pathlib.Path(directory)
        header = _read_header(directory)
        return cls(
            Side.load(directory / "source", header["dtype"]),
            Side.load(directory / "target", header["dtype"]),
            header["dropped"],
            header["empty"],
        )


def _read_header(directory: pathlib.Path) -> dict:
    try:
        return json.loads((directory / RECORDS_FILE).read_text())
    except (OSError, ValueError):
        raise config.UserError(
            f"Expected token records in {directory}, found no readable "
            f"{RECORDS_FILE}; remove or rename what is there."
        ) from None


def _write_records(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: pathlib.Path,
    max_length: int | None,
    progress: Callable[[int], None] | None,
) -> dict:
    """Write ids and lengths of both sides; returns what the header adds."""
    dtype = "uint16" if tokenizer.vocab_size <= 2**16 else "int32"
    read = kept = empty = 0
    with (
        open(directory / "source.ids", "wb") as source_ids,
        open(directory / "source.lengths", "wb") as source_lengths,
        open(directory / "target.ids", "wb") as target_ids,
        open(directory / "target.lengths", "wb") as target_lengths,
    ):
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            source, target = map(tokenizer.tokenize, zip(*chunk, strict=True))
            lengths = np.stack([source.row_lengths(), target.row_lengths()])
            keep = np.ones(len(chunk), bool)
            if max_length is not None:
                # Without text there is the end token alone.
                blank = (lengths == 1).any(axis=0)
                keep = ~blank & (lengths <= max_length).all(axis=0)
                empty += int(blank.sum())
            _append(source, keep, dtype, source_ids, source_lengths)
            _append(target, keep, dtype, target_ids, target_lengths)
            read += len(chunk)
            kept += int(keep.sum())
            if progress is not None:
                progress(read)
    if not kept:
        raise config.UserError(
            "Expected at least one pair of sentences to keep, received "
            f"{read}, none with text and at most {max_length} tokens on both "
            "sides; check the corpus or raise the maximum length."
        )
    return {"dtype": dtype, "dropped": read - kept - empty, "empty": empty}


def _append(
    ragged: tf.RaggedTensor,
    keep: np.ndarray,
    dtype: str,
    ids: BinaryIO,
    lengths: BinaryIO,
) -> None:
    row_lengths = ragged.row_lengths().numpy()
    values = ragged.values.numpy()[np.repeat(keep, row_lengths)]
    values.astype(dtype).tofile(ids)
    row_lengths[keep].astype(np.int32).tofile(lengths)


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
        random = np.random.default_rng([self.seed, epoch])
        pairs = np.arange(len(self.corpus))
        cuts = self._cuts
        if self.shuffle:
            random.shuffle(pairs)
            cuts = [cuts[i] for i in random.permutation(len(cuts))]
        pairs = pairs[np.argsort(self._ranks[pairs], kind="stable")]
        batches = []
        for start, stop, (num_rows, source_length, target_length) in cuts:
            rows = np.full(num_rows, -1)
            rows[: stop - start] = pairs[start:stop]
            batches.append(Batch(rows, source_length, target_length))
        return batches

    def shapes(self) -> list[tuple[int, int, int]]:
        """List every (B, S, T) that occurs, in ascending order."""
        return sorted({shape for _, _, shape in self._cuts})

    def padding_waste(self) -> float:
        """Return the share of PAD among all positions of both sides."""
        positions = sum(b * (s + t) for _, _, (b, s, t) in self._cuts)
        tokens = self.corpus.source_lengths.sum(dtype=np.int64)
        tokens += self.corpus.target_lengths.sum(dtype=np.int64)
        return float(1 - tokens / positions)

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
    plan: BatchPlan,
    cursor: tuple[int, int] = (0, 0),
    rows: slice | None = None,
) -> tf.data.Dataset:
    """Stream training batches without end.

    Args:
        plan: Which pairs meet.
        cursor: Epoch and batch of the first element, both from 0. After `n`
            updates from the start, `divmod(n, len(plan))`.
        rows: The part of every batch that this worker takes, such as
            `slice(worker, None, workers)`; all rows by default.

    Returns:
        Dataset of `((source (B, S), target_in (B, T)), target_out (B, T))`,
        int32. `target_in` is BOS and the target without EOS, `target_out` the
        target with EOS; PAD fills both, and rows of padding throughout.
    """
    first_epoch, first_batch = cursor
    rows = rows or slice(None)
    planned = functools.lru_cache(maxsize=1)(plan.epoch)

    def batch(number: int) -> Batch:
        epoch, index = divmod(number, len(plan))
        batch = planned(epoch)[index]
        return batch._replace(rows=batch.rows[rows])

    first = first_epoch * len(plan) + first_batch
    return _dataset(plan.corpus, tf.data.Dataset.counter(first), batch)


def evaluation_batches(
    corpus: TokenisedCorpus, batch_tokens: int
) -> tf.data.Dataset:
    """Stream every pair once, shortest first, in the form of `batches`."""
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
    return dataset.with_options(options).prefetch(8)


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
