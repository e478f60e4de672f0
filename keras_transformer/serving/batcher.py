"""Batches the texts of many clients, and lets short requests pass long ones.

A text waits until there are `max_batch_size` of them or
`batch_timeout_micros` have passed, then shares a batch with the texts nearest
in length. Its result does not depend on them, up to the rounding of sums.

Short and long requests alternate at the model, so a short one waits only for
the batches in work and for other short ones, however long the queue is.
"""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from keras_transformer.serving.limits import AGAIN, Batching, RefusalError
from keras_transformer.serving.versions import Outputs, Row, ServedModel

# The most bytes in a batch, with each text counted as the longest: a few
# sentences of the greatest length that models take, so nobody waits long.
_BATCH_BYTES = 8_192
_SHORT = 1 / 4  # Requests of more than this part of a batch are long.
_LONG = 3 / 4  # The part of all places that long requests may take.


class _Key(NamedTuple):
    """What texts have in common that may share a batch."""

    model: ServedModel
    signature: str
    alone: object | None  # The request, if its texts share with no others.
    is_long: bool


class _Waiting(NamedTuple):
    """A text in the queue."""

    row: Row
    length: int  # In bytes.
    since: float  # On the clock of the event loop.
    answer: asyncio.Future[Outputs]  # Each output (1, ...).


class Batcher:
    """The queue before the model.

    One event loop decides and threads compute, so nothing here needs a lock.
    """

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self.answered = 0  # Batches so far.
        # Texts that hold a place, and how many are of long requests.
        self.taken = self.taken_by_long = 0
        threads = batching.num_batch_threads
        self._pool = ThreadPoolExecutor(threads, "batch")
        batches = batching.max_enqueued_batches + threads
        self._capacity = batching.max_batch_size * batches
        self._delay = batching.batch_timeout_micros / 1e6
        self._free = threads
        # Texts in one queue may share a batch; oldest first.
        self._queues: dict[_Key, list[_Waiting]] = {}
        self._was_long = False  # The batch that began last.

    async def run(
        self, model: ServedModel, signature: str, rows: Sequence[Row]
    ) -> Outputs:
        """Call a signature for the texts of a request.

        A long request puts only one batch at a time into the queue, or one for
        each thread if it comes alone. If cancelled, a request leaves the queue.
        Without room it is refused.
        """
        # Padding shows how long the longest text of a batch is. Such a batch
        # therefore holds the texts of one request only.
        alone = object() if signature in model.padded else None
        size = self.batching.max_batch_size
        lengths = [sum(map(len, row)) for row in rows]
        most = max(1, size * _SHORT)
        is_long = len(rows) > most or sum(lengths) > _BATCH_BYTES
        key = _Key(model, signature, alone, is_long)
        if not self.taken_by_long:
            size *= self.batching.num_batch_threads
        places = min(len(rows), size)
        of_long = places if is_long else 0
        # Alone, a long request always has room.
        share = _LONG if is_long and self.taken_by_long else 1
        is_full = self.taken + places > self._capacity
        if is_full or self.taken_by_long + of_long > self._capacity * share:
            raise RefusalError("The queue is full; try again.", 503, AGAIN)
        self.taken += places
        self.taken_by_long += of_long
        loop = asyncio.get_running_loop()
        order = sorted(range(len(rows)), key=lengths.__getitem__)
        answers = [loop.create_future() for _ in rows]
        try:
            for start in range(0, len(rows), size):
                piece = order[start : start + size]
                now, queue = loop.time(), self._queues.setdefault(key, [])
                for i in piece:
                    queue.append(_Waiting(rows[i], lengths[i], now, answers[i]))
                self._begin()
                loop.call_later(self._delay, self._begin)
                # Cancelling this cancels them all.
                await asyncio.gather(*(answers[i] for i in piece))
        finally:
            self.taken -= places
            self.taken_by_long -= of_long
        return _joined([answer.result() for answer in answers])

    def _begin(self) -> None:
        """Begin every batch that is ready while threads are free."""
        # A timer may fire a little before the time it was set for.
        overdue = asyncio.get_running_loop().time() - self._delay + 1e-3
        while self._free:
            for key, queue in list(self._queues.items()):
                queue[:] = [each for each in queue if not each.answer.done()]
                if not queue:
                    del self._queues[key]
            size = self.batching.max_batch_size
            ready = [
                (key.is_long == self._was_long, queue[0].since, key)
                for key, queue in self._queues.items()
                if len(queue) >= size or queue[0].since <= overdue
            ]
            if not ready:
                return
            *_, key = min(ready, key=lambda each: each[:2])
            self._was_long = key.is_long
            while self._free and self._queues[key]:
                batch = self._take(key)
                self._free -= 1
                asyncio.ensure_future(self._compute(key, batch))

    def _take(self, key: _Key) -> list[_Waiting]:
        """Pick the oldest text of a queue and the texts nearest in length."""
        queue = self._queues[key]
        # For each free thread: two halves finish sooner in parallel.
        share = math.ceil(len(queue) / self._free)
        size = min(share, self.batching.max_batch_size)
        # The oldest has distance 0, and the sort keeps the order of equals.
        oldest = queue[0].length
        queue.sort(key=lambda each: abs(each.length - oldest))
        count = longest = 0
        for each in queue[:size]:
            longest = max(longest, each.length)
            if count and (count + 1) * longest > _BATCH_BYTES:
                break
            count += 1
        taken, others = queue[:count], queue[count:]
        queue[:] = sorted(others, key=lambda each: each.since)
        return taken

    async def _compute(self, key: _Key, batch: list[_Waiting]) -> None:
        parts, loop = [batch], asyncio.get_running_loop()
        for part in parts:
            rows = [waiting.row for waiting in part]
            try:
                outputs = await loop.run_in_executor(
                    self._pool, key.model.run, key.signature, rows
                )
                answers = [
                    {name: x[i : i + 1] for name, x in outputs.items()}
                    for i in range(len(part))
                ]
            except Exception as error:  # The batch failed, not the server.
                if len(part) > 1:  # Not all of them need be the cause.
                    parts += [[waiting] for waiting in part]
                elif not part[0].answer.done():
                    part[0].answer.set_exception(error)
                continue
            self.answered += 1
            for waiting, answer in zip(part, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
        self._free += 1
        self._begin()


def _joined(rows: Sequence[Outputs]) -> Outputs:
    """Join outputs `(1, ...)`, padded with 0 or "" as a signature pads them."""
    joined = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        longest = np.max([value.shape for value in values], axis=0)[1:]
        filling = b"" if values[0].dtype == object else 0
        joined[name] = np.full((len(rows), *longest), filling, values[0].dtype)
        for i, value in enumerate(values):
            place: tuple = (i, *map(slice, value.shape[1:]))
            joined[name][place] = value[0]
    return joined
