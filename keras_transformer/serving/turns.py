"""Works on long requests in turns, and never on the event loop.

Whatever takes longer the more a client sends happens here: reading JSON and
forms, finding sentences, placing tags, writing answers.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# The shortest time of a turn.
_SECONDS = 0.005


class _Turn(NamedTuple):
    """What a turn has come to."""

    is_over: bool
    result: Any
    seconds: float


class Turns:
    """A thread for work that others must not wait for.

    Work is a generator that yields wherever it may be interrupted. A turn goes
    to the work that has had the least time so far, so what is soon done need
    not wait for what takes long. Work that nobody waits for any more gets no
    further turn.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "turns")
        self._is_free = True
        self._numbers = itertools.count()
        # Time had so far, order of arrival, and who waits.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    async def finish(self, work: Generator[None, None, T]) -> T:
        """Do all of some work, and return what it returns."""
        loop = asyncio.get_running_loop()
        had = 0.0
        while True:
            turn: asyncio.Future[None] = loop.create_future()
            heapq.heappush(self._waiting, (had, next(self._numbers), turn))
            self._give()
            try:
                await turn
                found = await loop.run_in_executor(self._thread, _turn, work)
            finally:
                # It may have been given, and nobody waits for it any more.
                if turn.done() and not turn.cancelled():
                    self._is_free = True
                    self._give()
            if found.is_over:
                return found.result
            had += found.seconds

    def _give(self) -> None:
        """Give the next turn if the thread is free."""
        while self._is_free and self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                self._is_free = False


def _turn(work: Generator[None, None, Any]) -> _Turn:
    begun = time.perf_counter()
    seconds = 0.0
    try:
        while seconds < _SECONDS:
            next(work)
            seconds = time.perf_counter() - begun
    except StopIteration as end:
        return _Turn(True, end.value, seconds)
    return _Turn(False, None, seconds)
