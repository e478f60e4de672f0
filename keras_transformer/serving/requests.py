"""Shared by all interfaces: bodies, refusals, clients that leave."""

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
_NOT_UTF_8 = "Expected a form in UTF-8, received other bytes; convert the text."


class RefusalError(Exception):
    """A request is refused, with the reason in one sentence.

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
        """Answer in JSON, in the same way for all interfaces."""
        return json_response({"error": self.message}, self.status, self.headers)


class GoneError(Exception):
    """The client has left; nobody waits for an answer."""


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer in JSON; write infinite numbers as Python reads them."""
    text = json.dumps(content, ensure_ascii=False)
    return Response(
        text.encode("utf-8", "replace"),
        status,
        dict(headers or {}),
        "application/json",
    )


class Bodies:
    """Reads the bodies of requests, within limits of size, time and number.

    Args:
        limits: The limits.

    Attributes:
        arriving: The number of bodies that have not arrived in full.
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
            RefusalError: As in `read`, or if it is not a JSON object.
            GoneError: If the client leaves first.
        """
        return as_json(await self.read(request))


async def _parts(request: Request, limits: Limits) -> AsyncIterator[bytes]:
    """Read a body as it arrives, within the limits of size and time."""
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
    """Refuse a request before its body is read to the end."""
    error = RefusalError(status, message, retry=status == 503)
    error.headers["Connection"] = "close"
    return error


def as_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RefusalError: If the body is something else.
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
    """Read a web page's form; if a name comes twice, the last value counts.

    Raises:
        RefusalError: If it is not such a form, or not UTF-8.
    """
    try:
        pairs = parse_qsl(text.decode(), True, errors="strict")
    except UnicodeDecodeError:
        raise RefusalError(400, _NOT_UTF_8) from None
    except ValueError:
        raise RefusalError(400, "Expected a form, cannot read it.") from None
    return dict(pairs)


def as_multipart(body: bytes, content_type: str) -> dict[str, str]:
    """Read a form as browsers' `FormData` sends it; files are left out.

    Args:
        body: The parts.
        content_type: The request's content type, with the boundary.

    Raises:
        RefusalError: If it is not such a form, or not UTF-8.
    """
    fields: dict[str, str] = {}

    def keep(field: Any) -> None:
        name, value = field.field_name or b"", field.value or b""
        fields[name.decode()] = value.decode()

    try:
        python_multipart.parse_form(
            {"Content-Type": content_type.encode("latin-1", "replace")},
            io.BytesIO(body),
            keep,
            lambda file: None,
        )
    except UnicodeDecodeError:
        raise RefusalError(400, _NOT_UTF_8) from None
    except python_multipart.exceptions.FormParserError:
        raise RefusalError(400, "Expected a form, cannot read it.") from None
    return fields


def scalar_text(text: str) -> str:
    r"""Drop lone surrogates, which JSON's \ud800 may leave."""
    encoded = text.encode("utf-16", "surrogatepass")
    return encoded.decode("utf-16", "replace")


async def unless_gone(
    request: Request, work: Coroutine[Any, Any, T], limits: Limits
) -> T:
    """Do a client's work while it waits, within the time limit.

    Args:
        request: Its request, with the body already read.
        work: The work; cancelled when nobody needs it any more.
        limits: The time limit.

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
