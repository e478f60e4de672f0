"""Cuts and batches texts as ids, and searches several batches at a time.

Threads within one matrix product must synchronise, which narrow matrices do not
repay; independent searches need not.

Axes: B batch, L tokens of the longest text.
"""

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
import tensorflow as tf

from keras_transformer.config import PAD_ID
from keras_transformer.data.corpus import checked_texts

_MOST_NUMBERS = 20  # In a message.
# With this many batches for each thread, their sums do not matter.
_MANY = 8
Item = TypeVar("Item")
Result = TypeVar("Result")


def as_bytes(name: str, texts: Sequence[str]) -> list[bytes]:
    """Encode texts in UTF-8; `name` stands for them in errors."""
    # UTF-8 cannot encode a lone surrogate.
    return [x.encode("utf-8", "replace") for x in checked_texts(name, texts)]


def check_pairs(**texts: Sequence[str]) -> None:
    """Refuse two sequences of texts with different lengths.

    Raises:
        SettingError: If one is not a list of texts.
        ValueError: If the lengths differ.
    """
    for name, given in texts.items():
        checked_texts(name, given)
    (one, ones), (other, others) = texts.items()
    if len(ones) != len(others):
        raise ValueError(
            f"`{one}` and `{other}` must be of one length. Received: "
            f"{len(ones)} {one}, {len(others)} {other}"
        )


def cut(
    ids: tf.RaggedTensor, longest: int | None, end: tuple[int, ...]
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Shorten rows to `longest` ids, the last of `end` still last, if any.

    Returns:
        The rows, and which of them were longer, bool `(B,)`.
    """
    if longest is None:
        return ids, tf.zeros([ids.nrows()], tf.bool)
    truncated = ids.row_lengths() > longest
    if not end:
        return ids[:, :longest], truncated
    ends = tf.fill([ids.nrows(tf.int32), 1], end[-1])
    return tf.concat([ids[:, :-1][:, : longest - 1], ends], axis=1), truncated


def numbered(are_cut: Iterable[bool], first: int = 1) -> str:
    """Name the lines that were cut, such as "3, 17" or "1, …, 20 and 7 more".

    The number of the first line is `first`.
    """
    lines = [number for number, is_cut in enumerate(are_cut, first) if is_cut]
    more = len(lines) - _MOST_NUMBERS
    named = ", ".join(map(str, lines[:_MOST_NUMBERS]))
    return named + (f" and {more} more" if more > 0 else "")


def dense(ids: tf.Tensor | tf.RaggedTensor, pad_id: int = PAD_ID) -> tf.Tensor:
    """Pad ragged rows."""
    if isinstance(ids, tf.RaggedTensor):
        return ids.to_tensor(pad_id)
    return ids


def batches(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
    parallel: int = 1,
) -> list[np.ndarray]:
    """Batch rows of similar length, within a budget of their costs.

    The longest come first: they need the most memory, and an estimate of the
    time left errs on the safe side.

    Args:
        rows: Numbers of the rows, int `(N,)`.
        lengths: Lengths of all rows, to sort by, int.
        costs: Cost of each row, int.
        batch_tokens: The budget: rows of a batch times its largest cost.
        parallel: Batches searched at the same time. If there are few for each,
            their number is a multiple of this and their sums of lengths are
            similar, so that nobody waits long for the last one. There may be
            further batches of short rows, cut only by the budget.

    Returns:
        The rows of each batch.
    """
    rows = rows[np.argsort(-lengths[rows], kind="stable")]
    found = _fill(rows, lengths, costs, batch_tokens)
    # If there are many, the last ones are the shortest and soon done.
    if parallel == 1 or not 0 < len(found) <= _MANY * parallel:
        return found
    count = -(-len(found) // parallel) * parallel
    share = lengths[rows].sum() / count
    return _fill(rows, lengths, costs, batch_tokens, share)


def _fill(
    rows: np.ndarray,
    lengths: np.ndarray,
    costs: np.ndarray,
    batch_tokens: int,
    share: float = np.inf,
) -> list[np.ndarray]:
    """Cut sorted rows where the budget, or a share of all lengths, is full."""
    found = []
    while len(rows):
        count = batch_tokens // int(costs[rows[0]])
        full = int(np.searchsorted(np.cumsum(lengths[rows[:count]]), share))
        count = max(1, min(count, full + 1))
        found.append(rows[:count])
        rows = rows[count:]
    return found


def results(
    function: Callable[[Item], Result], items: Iterable[Item], parallel: int
) -> Generator[tuple[Item, Result], None, None]:
    """Apply a function to items, several at the same time.

    The function is called in threads of its own, or in the caller's if
    `parallel` is 1. An item is taken when there is room for it. An error, or
    closing, drops the waiting items and waits for the running ones: a search
    cannot be stopped.

    Yields:
        An item and its result, in the order in which they are done.
    """
    if parallel == 1:
        for item in items:
            yield item, function(item)
        return
    rest = iter(items)
    running: dict[Future[Result], Item] = {}
    with ThreadPoolExecutor(parallel, "search") as pool:
        try:
            # One more than can run, so that no thread waits for the caller.
            for item in itertools.islice(rest, parallel + 1):
                running[pool.submit(function, item)] = item
            while running:
                for future in wait(running, None, FIRST_COMPLETED).done:
                    item, result = running.pop(future), future.result()
                    for following in itertools.islice(rest, 1):
                        running[pool.submit(function, following)] = following
                    yield item, result
        finally:
            for future in running:
                future.cancel()
