"""The way of a request with a body, whichever interface it came by.

It is let in, read, worked on while its client waits, and forgotten. What takes
longer the more a client sends is done in turns, never on the event loop:
reading JSON and forms, finding sentences, placing tags, writing answers.
"""

import asyncio
import dataclasses
import heapq
import itertools
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import GoneError, Limits, RefusalError
from keras_transformer.serving.versions import ServedModel, Versions

T = TypeVar("T")
Work = Generator[None, None, T]  # It yields where it may be interrupted.

# The shortest time of a turn.
_TURN_SECONDS = 0.005
# Bytes of a body that is read within milliseconds, whatever it holds.
_SHORT = 2_048
# A text is at most an object with two names, each with an object in base64.
_VALUES_PER_TEXT = 5
_VALUES_BESIDE = 64


@dataclasses.dataclass
class Service:
    """A model that is served.

    Attributes:
        name: The model's name for clients.
        versions: The model's versions.
        batcher: The queue before them.
        limits: Limits of a request, and of all.
        explain: Turns a text into the HTML document of its explanation by
            weights of the name given; raises `UserError` if it has others.
            None if there is only the export, which cannot explain.
        held: Bytes of the bodies that are arriving or being worked on.
    """

    name: str
    versions: Versions
    batcher: Batcher
    limits: Limits
    explain: Callable[[str, str], str] | None = None
    held: int = 0

    def __post_init__(self) -> None:
        self.turns = Turns()

    async def answer(
        self, request: Request, work: Callable[["Job"], Awaitable[T]]
    ) -> T:
        """Read the body of a request and work on it while its client waits.

        Work that nobody needs any more is cancelled.

        Raises:
            RefusalError: If the body is too large or does not arrive in time,
                there is no room for it now, the time is over, or the client
                leaves.
        """
        job = Job(self, request)

        async def begin() -> T:
            with self.versions.use() as job.model:
                return await work(job)

        try:
            await job.receive()
            return await self.unless_gone(request, begin())
        finally:
            job.hold(0)

    async def unless_gone(self, request: Request, work: Awaitable[T]) -> T:
        """Do work for a request that has been read, as `answer` does."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_left(request))
        try:
            done, _ = await asyncio.wait(
                {task, gone},
                timeout=self.limits.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if task in done:
                return task.result()
        finally:
            task.cancel()
            gone.cancel()
        if gone in done:
            raise GoneError
        raise RefusalError(
            504,
            f"No answer within {self.limits.seconds:g} seconds; send less at a "
            "time.",
        )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Job:
    """A request that was let in.

    Attributes:
        service: Answers it.
        request: Its head.
        body: Its body.
        model: The version that works on it, in use until it is answered.
        is_long: Whether work on it might take so long that it has to take
            turns with others.
    """

    model: ServedModel

    def __init__(self, service: Service, request: Request) -> None:
        self.service, self.request = service, request
        self.body = b""
        self.is_long = False
        self._held = 0

    async def receive(self) -> None:
        """Read the body, within limits of size, time and number."""
        announced = self.request.headers.get("content-length", "")
        if announced.isdecimal():
            self._check_size(int(announced[:20]))
        try:
            await asyncio.wait_for(
                self._read(), self.service.limits.body_seconds
            )
        except asyncio.TimeoutError:
            raise RefusalError(
                408,
                "The body of the request did not arrive in time.",
                close=True,
            ) from None
        except ClientDisconnect:
            raise GoneError from None
        encoding = self.request.headers.get("content-encoding", "").lower()
        if encoding not in ("", "identity"):
            self.is_long = True
            self.body = await self.turn(lambda: self._unpacked(encoding))
            self.hold(len(self.body))

    async def _read(self) -> None:
        body = bytearray()
        async for part in self.request.stream():
            body += part
            self.hold(len(body))
        self.body = bytes(body)

    def hold(self, size: int) -> None:
        """Count the bytes that are held; refuse a long body without room."""
        service = self.service
        service.held += size - self._held
        self._held = size
        self._check_size(size)
        self.is_long = self.is_long or size > _SHORT
        if size > _SHORT and service.held > service.limits.max_bytes_held:
            raise RefusalError(
                503,
                "Too many long texts are being read; try again.",
                retry=True,
                close=True,
            )

    def _check_size(self, size: int) -> None:
        most = self.service.limits.max_body_bytes
        if size > most:
            raise RefusalError(
                413,
                f"Expected a body of at most {most} bytes, received more; send "
                "less at a time.",
            )

    def _unpacked(self, encoding: str) -> bytes:
        if encoding not in ("gzip", "x-gzip"):
            raise RefusalError(
                415,
                f"Expected a body as it is or in gzip, received {encoding}.",
            )
        packed = zlib.decompressobj(16 + zlib.MAX_WBITS)
        most = self.service.limits.max_body_bytes
        try:
            found = packed.decompress(self.body, most + 1)
        except zlib.error:
            found = b""
        self._check_size(len(found))
        if not packed.eof:
            raise RefusalError(
                400, "Expected a body in gzip, cannot unpack it."
            )
        return found

    async def finish(self, work: Work[T]) -> T:
        """Do work as `Turns.finish` does, or at once if it is short."""
        if self.is_long:
            return await self.service.turns.finish(work)
        try:
            while True:
                next(work)
        except StopIteration as end:
            return end.value

    async def turn(self, work: Callable[[], T]) -> T:
        """Do work that needs one turn."""

        def at_once() -> Work[T]:
            yield
            return work()

        return await self.finish(at_once())

    def as_json(self) -> dict[str, Any]:
        """Read the body as a JSON object.

        Raises:
            RefusalError: If it is none, or has more values than texts need.
        """
        most = _VALUES_PER_TEXT * self.service.limits.max_texts + _VALUES_BESIDE
        try:
            encoding = json.detect_encoding(self.body)
            text = self.body.decode(encoding, "surrogatepass")
            # One of these stands before each value. Strings are left out, and
            # before that the quotes inside them.
            bare = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
            if sum(map("".join(bare).count, ",[{")) > most:
                raise RefusalError(
                    400,
                    f"Expected JSON of at most {most} values, received more.",
                )
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            where = f" at offset {error.pos}" if hasattr(error, "pos") else ""
            raise RefusalError(
                400, f"Expected JSON, cannot read it{where}."
            ) from None
        if not isinstance(fields, dict):
            raise RefusalError(400, "Expected a JSON object.")
        return fields


def json_response(
    content: Any, status: int = 200, headers: Any = None
) -> Response:
    """Answer in JSON; write infinite numbers as Python reads them."""
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")


def json_written(content: Any) -> Work[Response]:
    """Answer as `json_response` does, in pieces: `dumps` stops all threads."""
    pieces = []
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(content):
        pieces.append(piece)
        yield
    text = "".join(pieces).encode("utf-8", "replace")
    return Response(text, media_type="application/json")


def scalar_text(text: str) -> str:
    r"""Drop lone surrogates, which JSON's \ud800 may leave."""
    encoded = text.encode("utf-16", "surrogatepass")
    return encoded.decode("utf-16", "replace")


class Turns:
    """A thread for work that others must not wait for.

    A turn goes to the work that has had the least time so far, so what is soon
    done need not wait for what takes long. Work that nobody waits for any more
    gets no further turn.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "turns")
        self._is_free = True
        self._numbers = itertools.count()
        # Time had so far, order of arrival, and who waits.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    async def finish(self, work: Work[Any]) -> Any:
        """Do all of some work, and return what it returns."""
        loop = asyncio.get_running_loop()
        had = 0.0
        while True:
            turn: asyncio.Future[None] = loop.create_future()
            heapq.heappush(self._waiting, (had, next(self._numbers), turn))
            self._give()
            try:
                await turn
                is_over, result, seconds = await loop.run_in_executor(
                    self._thread, _turn, work
                )
            finally:
                # It may have been given, and nobody waits for it any more.
                if turn.done() and not turn.cancelled():
                    self._is_free = True
                    self._give()
            if is_over:
                return result
            had += seconds

    def _give(self) -> None:
        """Give the next turn if the thread is free."""
        while self._is_free and self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                self._is_free = False


def _turn(work: Work[Any]) -> tuple[bool, Any, float]:
    """Work for a moment: whether it is over, its result, and the seconds."""
    begun, seconds = time.perf_counter(), 0.0
    try:
        while seconds < _TURN_SECONDS:
            next(work)
            seconds = time.perf_counter() - begun
    except StopIteration as end:
        return True, end.value, seconds
    return False, None, seconds
