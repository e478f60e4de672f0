"""The one way of a request with a body, whichever interface it came by.

It is let in, read, worked on while its client waits, and forgotten. The parts
that all interfaces share are here: the model, its queue, the limits.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import Limits
from keras_transformer.serving.requests import (
    GoneError,
    RefusalError,
    as_json,
    too_large,
    unpacked,
)
from keras_transformer.serving.served_model import Outputs, Row, ServedModel
from keras_transformer.serving.turns import Turns
from keras_transformer.serving.versions import Versions
from keras_transformer.translation.model_card import ModelCard

T = TypeVar("T")

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

        Args:
            request: The request.
            work: The work; cancelled when nobody needs it any more.

        Raises:
            RefusalError: If the body is too large or does not arrive in time,
                there is no room for it now, or the time is over.
            GoneError: If the client leaves first.
        """
        job = Job(self, request)
        try:
            await job.receive()
            return await self.unless_gone(request, work(job))
        finally:
            job.hold(0)

    async def unless_gone(self, request: Request, work: Awaitable[T]) -> T:
        """Do a client's work while it waits, within the time limit.

        The request's body has been read. Errors are those of `answer`.
        """
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

    async def run(
        self, model: ServedModel, signature: str, rows: Sequence[Row]
    ) -> Outputs:
        """Call a signature as `Batcher.run` does, within the limit of texts.

        Raises:
            RefusalError: If there are too many, no room now, or no such
                signature.
        """
        check_signature(model, signature)
        self.limits.check_texts(len(rows))
        return await self.batcher.run(model, signature, rows)


class Job:
    """A request that was let in.

    Attributes:
        service: Answers it.
        request: Its head.
        body: Its body.
        is_long: Whether work on it might take so long that it has to take
            turns with others.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self.service, self.request = service, request
        self.body = b""
        self.is_long = False
        self._held = 0

    async def receive(self) -> None:
        """Read the body, within limits of size, time and number."""
        limits = self.service.limits
        announced = self.request.headers.get("content-length", "")
        if announced.isdecimal():
            if int(announced[:20]) > limits.max_body_bytes:
                raise too_large(limits.max_body_bytes)
        loop = asyncio.get_running_loop()
        end, body, more = loop.time() + limits.body_seconds, bytearray(), True
        while more:
            message = await _message(self.request, end - loop.time())
            more = message.get("more_body", False)
            body += message.get("body", b"")
            self.hold(len(body))
        self.body = bytes(body)
        encoding = self.request.headers.get("content-encoding", "").lower()
        if encoding not in ("", "identity"):
            self.is_long = True
            self.body = await self.turn(
                lambda: unpacked(self.body, encoding, limits.max_body_bytes)
            )
            self.hold(len(self.body))

    def hold(self, size: int) -> None:
        """Count the bytes that are held; refuse a long body without room."""
        service, limits = self.service, self.service.limits
        service.held += size - self._held
        self._held = size
        if size > limits.max_body_bytes:
            raise too_large(limits.max_body_bytes)
        self.is_long = self.is_long or size > _SHORT
        if size > _SHORT and service.held > limits.max_bytes_held:
            raise RefusalError(
                503,
                "Too many long texts are being read; try again.",
                retry=True,
                close=True,
            )

    async def finish(self, work: Generator[None, None, T]) -> T:
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

        def at_once() -> Generator[None, None, T]:
            yield
            return work()

        return await self.finish(at_once())

    def as_json(self) -> dict[str, Any]:
        """Read the body as a JSON object.

        Raises:
            RefusalError: If it is none, or has more values than texts need.
        """
        most = _VALUES_PER_TEXT * self.service.limits.max_texts
        return as_json(self.body, most + _VALUES_BESIDE)


async def _message(request: Request, seconds: float) -> Mapping[str, Any]:
    """Receive the next part of a body."""
    try:
        message = await asyncio.wait_for(request.receive(), seconds)
    except asyncio.TimeoutError:
        raise RefusalError(
            408, "The body of the request did not arrive in time.", close=True
        ) from None
    if message["type"] == "http.disconnect":
        raise GoneError
    return message


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_signature(model: ServedModel, signature: str) -> None:
    """Raise `RefusalError` if an export lacks a signature."""
    if signature not in model.signatures:
        raise RefusalError(
            501,
            f"This export has no signature {signature}, which this takes; "
            "export the model with this version of keras-transformer.",
        )


def card_of(model: ServedModel) -> ModelCard:
    """Return the card of a model.

    Raises:
        RefusalError: If the export has no card.
    """
    if model.card is None:
        raise RefusalError(
            501,
            "This export does not say its languages; export it from its run "
            "with this version of keras-transformer. TensorFlow Serving's "
            "interface under /v1 answers all the same.",
        )
    return model.card
