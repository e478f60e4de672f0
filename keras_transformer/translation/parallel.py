"""Batches that are searched at the same time.

Two threads that share the products of one search meet after each of them, and
a product of narrow matrices is over before that pays. Searches beside each
other never meet.
"""

import itertools
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from keras_transformer.config import SettingError

# Each search holds the keys and values of a batch of its own, 0.8 GB for base:
# all together have this width, and so at most about 3 GB.
TOTAL_WIDTH = 2_048
# Up to here several searches are no slower than one where each of them uses all
# cores: `benchmarks/decoding.md`.
NARROW = 256
# Fewer texts than these are searched faster together by operators of several
# threads.
FEWEST = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def searches(
    asked: int | None,
    cores: int,
    d_model: int,
    threads: int = 1,
    texts: int | None = None,
) -> int:
    """How many searches run at the same time.

    As many as there are cores where each has one thread, which is the fastest
    at every width measured. Wide models whose operators have more threads than
    that have searches for the cores alone.

    Args:
        asked: The number that somebody wants; None for the best.
        cores: Of the processor, for this process.
        d_model: The model's width.
        threads: On which an operator runs.
        texts: To translate; None where nobody knows.

    Raises:
        ValueError: If `asked` is below 1.
    """
    if asked is None:
        most = cores if d_model <= NARROW else cores // threads
        if threads > 1 and texts is not None:
            most = min(most, texts // FEWEST)
        return max(1, min(most, TOTAL_WIDTH // d_model))
    if asked < 1:
        raise SettingError("parallel", "at least 1", asked)
    return asked


def results(
    function: Callable[[Item], Result], items: Iterable[Item], parallel: int
) -> Generator[tuple[Item, Result], None, None]:
    """Apply a function to items, so many at the same time.

    An item is taken when there is a place for it. An error, or closing, drops
    the items that wait and ends once those that run are done: a search cannot
    be stopped.

    Args:
        function: Called in threads of their own, or for one at a time in the
            caller's.
        items: Its arguments.
        parallel: How many at the same time, at least 1.

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
            # One more than run, so that no thread waits for the caller.
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
