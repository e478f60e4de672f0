"""What every interface does alike: bodies, refusals, clients that leave."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import python_multipart
from starlette.requests import Request
from starlette.responses import Response

from keras_transformer.serving.limits import Limits

T = TypeVar("T")

RETRY_SECONDS = 1


class RefusalError(Exception):
    """Why a request gets no other answer, in one sentence.

    Args:
        status: HTTP status code.
        message: The sentence.
        retry: Whether the same request may succeed in a moment.
    """

    def __init__(self, status: int, message: str, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = {"Retry-After": str(RETRY_SECONDS)} if retry else {}

    def response(self) -> Response:
        """The answer in JSON, alike in all interfaces."""
        return json_response({"error": self.message}, self.status, self.headers)


class GoneError(Exception):
    """The client has left; nobody waits for an answer."""


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer in JSON; numbers beyond JSON are written as Python reads."""
    text = json.dumps(content, ensure_ascii=False)
    return Response(
        text.encode("utf-8", "replace"),
        status,
        dict(headers or {}),
        "application/json",
    )


class Bodies:
    """The bodies of requests, as they arrive: how large, how long, how many.

    Args:
        limits: What they may be.

    Attributes:
        arriving: How many have not arrived whole.
        held: Their bytes so far.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.arriving = self.held = 0

    async def read(self, request: Request) -> bytes:
        """Read the body of a request.

        Raises:
            RefusalError: If it is too large, does not arrive in time, or there
                is no room for it now.
            GoneError: If the client leaves first.
        """
        body = bytearray()
        self.arriving += 1
        try:
            async for part in _parts(request, self.limits):
                body += part
                self.held += len(part)
                if self.held > self.limits.max_bytes_held:
                    raise _closing(
                        503, "Too many bodies are arriving; try again."
                    )
        finally:
            self.arriving -= 1
            self.held -= len(body)
        return bytes(body)

    async def read_json(self, request: Request) -> dict[str, Any]:
        """Read a body that is a JSON object.

        Raises:
            RefusalError: As from `read`, or if it is not a JSON object.
            GoneError: If the client leaves first.
        """
        return as_json(await self.read(request))


async def _parts(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """A body as it arrives, up to its limit in size and time."""
    too_large = RefusalError(
        413,
        f"Expected a body of at most {limits.max_body_bytes} bytes, received "
        "more; send less at a time.",
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limits.max_body_bytes:
        raise too_large
    loop = asyncio.get_running_loop()
    end, size, more = loop.time() + limits.body_seconds, 0, True
    while more:
        try:
            message = await asyncio.wait_for(
                request.receive(), end - loop.time()
            )
        except asyncio.TimeoutError:
            raise _closing(
                408, "The body of the request did not arrive in time."
            ) from None
        if message["type"] == "http.disconnect":
            raise GoneError
        part = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(part)
        if size > limits.max_body_bytes:
            raise too_large
        yield part


def _closing(status: int, message: str) -> RefusalError:
    """A refusal before the body is read to its end."""
    error = RefusalError(status, message, retry=status == 503)
    error.headers["Connection"] = "close"
    return error


def as_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RefusalError: If it is none.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        where = f" at offset: {error.pos}" if hasattr(error, "pos") else ""
        raise RefusalError(
            400, f"JSON Parse error: {type(error).__name__}{where}"
        ) from None
    if not isinstance(fields, dict):
        raise RefusalError(400, "Expected a JSON object.")
    return fields


def as_form(text: bytes) -> dict[str, str]:
    """Read a form of a web page; of a name that comes twice the last."""
    try:
        pairs = parse_qsl(text.decode("utf-8", "replace"), True)
    except ValueError:
        raise RefusalError(400, "Expected a form, cannot read it.") from None
    return dict(pairs)


def as_multipart(body: bytes, content_type: str) -> dict[str, str]:
    """Read a form as browsers' `FormData` sends it; files are left out.

    Args:
        body: The parts.
        content_type: What the request says of them, their boundary with it.

    Raises:
        RefusalError: If it is none.
    """
    fields: dict[str, str] = {}

    def keep(field: Any) -> None:
        name, value = field.field_name or b"", field.value or b""
        fields[name.decode("utf-8", "replace")] = value.decode(
            "utf-8", "replace"
        )

    try:
        python_multipart.parse_form(
            {"Content-Type": content_type.encode("latin-1", "replace")},
            io.BytesIO(body),
            keep,
            lambda file: None,
        )
    except python_multipart.exceptions.FormParserError:
        raise RefusalError(400, "Expected a form, cannot read it.") from None
    return fields


def scalar_text(text: str) -> str:
    r"""A text without halves of characters, which JSON's \ud800 may leave."""
    encoded = text.encode("utf-16", "surrogatepass")
    return encoded.decode("utf-16", "replace")


async def unless_gone(
    request: Request, work: Coroutine[Any, Any, T], limits: Limits
) -> T:
    """Do what a client asks for while it waits, and within the time.

    Args:
        request: Its request, the body of which is read.
        work: What to do; cancelled where nobody needs it any more.
        limits: The time.

    Raises:
        RefusalError: If the time is over.
        GoneError: If the client leaves first.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_left(request))
    try:
        done, _ = await asyncio.wait(
            {task, gone},
            timeout=limits.seconds,
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
        f"No answer within {limits.seconds:g} seconds; send less at a time.",
    )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
