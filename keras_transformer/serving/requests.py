"""Shared by all interfaces: how requests are read, refused and answered."""

import email.message
import functools
import json
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.responses import Response

GONE = 499
# A form of ours has five.
_MOST_FIELDS = 64
# Bytes of the headers of a field, which Python's reader of e-mail takes long
# to read.
_MOST_HEADERS = 1_024
_DISPOSITION = re.compile(r"(?i)\r\ncontent-disposition:([^\r\n]*)")
_NOT_UTF_8 = "Expected a form in UTF-8, received other bytes; convert the text."
_NO_FORM = (
    f"Expected a form of at most {_MOST_FIELDS} fields, cannot read it as one."
)


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
    text = "".join(_written(content)).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")


def json_written(content: Any) -> Generator[None, None, Response]:
    """Answer as `json_response` does, a piece at a time."""
    pieces = []
    for piece in _written(content):
        pieces.append(piece)
        yield
    text = "".join(pieces).encode("utf-8", "replace")
    return Response(text, media_type="application/json")


_piece = functools.partial(json.dumps, ensure_ascii=False)


def _written(content: Any) -> Iterator[str]:
    """Write JSON in pieces: a whole `json.dumps` would stop all threads."""
    if isinstance(content, dict):
        for i, (name, value) in enumerate(content.items()):
            yield f"{', ' if i else '{'}{_piece(name)}: "
            yield from _written(value)
        yield "}" if content else "{}"
    elif isinstance(content, list) and isinstance(
        next(iter(content), None), list | dict
    ):
        for i, value in enumerate(content):
            yield ", " if i else "["
            yield from _written(value)
        yield "]"
    else:
        yield _piece(content)


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """Undo a body's `Content-Encoding`.

    Raises:
        RefusalError: If it has another encoding than gzip, is damaged, or has
            more than `most` bytes.
    """
    if encoding not in ("gzip", "x-gzip"):
        raise RefusalError(
            415, f"Expected a body as it is or in gzip, received {encoding}."
        )
    packed = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        found = packed.decompress(body, most + 1)
    except zlib.error:
        found = b""
    if len(found) > most:
        raise too_large(most)
    if not packed.eof:
        raise RefusalError(400, "Expected a body in gzip, cannot unpack it.")
    return found


def too_large(most: int) -> RefusalError:
    """Make the refusal of a body of more than `most` bytes."""
    return RefusalError(
        413,
        f"Expected a body of at most {most} bytes, received more; send less at "
        "a time.",
    )


def as_json(body: bytes, most: int) -> dict[str, Any]:
    """Read a JSON object of few values.

    Python's fast reader would stop all threads until it is done, and reads any
    number of empty lists.

    Args:
        body: The text.
        most: The most values in all its lists and objects.

    Raises:
        RefusalError: If the body is something else.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        fields = _Decoder(most).decode(text)
    except (ValueError, RecursionError) as error:
        where = f" at offset: {error.pos}" if hasattr(error, "pos") else ""
        raise RefusalError(
            400, f"JSON Parse error: {type(error).__name__}{where}"
        ) from None
    if not isinstance(fields, dict):
        raise RefusalError(400, "Expected a JSON object.")
    return fields


class _Decoder(json.JSONDecoder):
    """Reads JSON in Python, and counts its values."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = self._left = most
        self.parse_array = lambda begun, scan: JSONArray(
            begun, self._counted(scan)
        )
        self.parse_object = lambda begun, strict, scan, *others: JSONObject(
            begun, strict, self._counted(scan), *others
        )
        self.scan_once = py_make_scanner(self)

    def _counted(self, scan: Callable) -> Callable:
        def scan_counted(text: str, at: int) -> Any:
            self._left -= 1
            if self._left < 0:
                raise RefusalError(
                    400,
                    f"Expected JSON of at most {self._most} values, received "
                    "more.",
                )
            return scan(text, at)

        return scan_counted


def as_form(text: bytes) -> dict[str, str]:
    """Read a web page's form.

    Raises:
        RefusalError: If it is not such a form, not UTF-8, or a name comes
            twice.
    """
    try:
        pairs = parse_qsl(
            text.decode(), True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise RefusalError(400, _NOT_UTF_8) from None
    except ValueError:
        raise RefusalError(400, _NO_FORM) from None
    return _once_each(pairs)


def as_multipart(body: bytes, content_type: str) -> dict[str, str]:
    """Read a form as browsers' `FormData` sends it; files are left out.

    The request's `content_type` names the boundary of the parts.

    Raises:
        RefusalError: As from `as_form`.
    """
    if len(content_type) > _MOST_HEADERS:
        raise RefusalError(400, _NO_FORM)
    boundary = _header("Content-Type", content_type).get_boundary("")
    line = b"\r\n--" + boundary.encode("latin-1", "replace")
    _, *parts = (b"\r\n" + body).split(line, _MOST_FIELDS + 1)
    if not boundary or not parts or not parts.pop().startswith(b"--"):
        raise RefusalError(400, _NO_FORM)
    pairs = []
    for part in parts:
        headers, _, value = part.partition(b"\r\n\r\n")
        if len(headers) > _MOST_HEADERS:
            raise RefusalError(400, _NO_FORM)
        try:
            said = _DISPOSITION.search(headers.decode())
            found = _header("Content-Disposition", said[1] if said else "")
            if found.get_filename() is None:
                name = found.get_param("name", "", "Content-Disposition")
                pairs.append((str(name), value.decode()))
        except UnicodeDecodeError:
            raise RefusalError(400, _NOT_UTF_8) from None
    return _once_each(pairs)


def _header(name: str, value: str) -> email.message.Message:
    message = email.message.Message()
    message[name] = value
    return message


def _once_each(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise RefusalError(
            400,
            "Expected each field of a form once, received one twice; send "
            "several texts as a list in JSON.",
        )
    return fields


def scalar_text(text: str) -> str:
    r"""Drop lone surrogates, which JSON's \ud800 may leave."""
    encoded = text.encode("utf-16", "surrogatepass")
    return encoded.decode("utf-16", "replace")
