"""Shared by all interfaces: bodies and refusals."""

import asyncio
import io
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import python_multipart
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from keras_transformer.serving.limits import Limits

GONE = 499
_NOT_UTF_8 = "Expected a form in UTF-8, received other bytes; convert the text."


class RefusalError(HTTPException):
    """A request is refused, with the reason in one sentence.

    Args:
        status: HTTP status code.
        message: The sentence.
        retry: Whether the same request may succeed in a moment.
        close: Whether the rest of its body is not read.
    """

    def __init__(
        self,
        status: int,
        message: str,
        retry: bool = False,
        close: bool = False,
    ) -> None:
        headers = {}
        if retry:
            headers["Retry-After"] = "1"  # Seconds.
        if close:
            headers["Connection"] = "close"
        super().__init__(status, message, headers)


class GoneError(HTTPException):
    """The client has left; the status is for the metrics alone."""

    def __init__(self) -> None:
        super().__init__(GONE, "The client has left.")


def error_response(error: HTTPException) -> Response:
    """Answer with an error, in the same way for all interfaces."""
    return json_response(
        {"error": error.detail}, error.status_code, error.headers
    )


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer in JSON; write infinite numbers as Python reads them."""
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")


class Bodies:
    """Reads the bodies of requests, within limits of size, time and number.

    Attributes:
        held: Bytes of the bodies that have not arrived in full.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0

    async def read(self, request: Request) -> bytes:
        """Read the body of a request.

        Raises:
            RefusalError: If it is too large, does not arrive in time, or there
                is no room for it now.
            GoneError: If the client leaves first.
        """
        limits = self.limits
        too_large = RefusalError(
            413,
            f"Expected a body of at most {limits.max_body_bytes} bytes, "
            "received more; send less at a time.",
        )
        announced = request.headers.get("content-length", "")
        if announced.isdecimal():
            if int(announced[:20]) > limits.max_body_bytes:
                raise too_large
        loop = asyncio.get_running_loop()
        end, body, more = loop.time() + limits.body_seconds, bytearray(), True
        try:
            while more:
                message = await _message(request, end - loop.time())
                more = message.get("more_body", False)
                part = message.get("body", b"")
                body += part
                self.held += len(part)
                if len(body) > limits.max_body_bytes:
                    raise too_large
                if self.held > limits.max_bytes_held:
                    raise RefusalError(
                        503,
                        "Too many bodies are arriving; try again.",
                        retry=True,
                        close=True,
                    )
        finally:
            self.held -= len(body)
        return bytes(body)


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

    The request's `content_type` names the boundary of the parts.

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
