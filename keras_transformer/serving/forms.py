"""Reads the forms that web pages send."""

import email.message
import re
from urllib.parse import parse_qsl

from keras_transformer.serving.limits import RefusalError

# A form of ours has five.
_MOST_FIELDS = 64
# Bytes of headers, which Python's reader of e-mail takes long to read.
_MOST_HEADERS = 1_024
_DISPOSITION = re.compile(r"(?i)\r\ncontent-disposition:([^\r\n]*)")
_NO_FORM = (
    f"Expected a form of at most {_MOST_FIELDS} fields, cannot read it as one."
)


def as_form(text: bytes, content_type: str = "") -> dict[str, str]:
    """Read a form, URL-encoded or in parts; files are left out.

    Raises:
        RefusalError: If it is not such a form, not UTF-8, or a name comes
            twice.
    """
    try:
        if content_type.lower().startswith("multipart/"):
            pairs = _in_parts(text, content_type)
        else:
            pairs = parse_qsl(
                *(text.decode(), True),
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
    except UnicodeDecodeError:
        raise RefusalError(
            400,
            "Expected a form in UTF-8, received other bytes; convert the text.",
        ) from None
    except ValueError:
        raise RefusalError(400, _NO_FORM) from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise RefusalError(
            400,
            "Expected each field of a form once, received one twice; send "
            "several texts as a list in JSON.",
        )
    return fields


def _in_parts(body: bytes, content_type: str) -> list[tuple[str, str]]:
    """Read a form as browsers' `FormData` sends it; ValueError if it is not."""
    if len(content_type) > _MOST_HEADERS:
        raise ValueError
    boundary = _header("Content-Type", content_type).get_boundary("")
    line = b"\r\n--" + boundary.encode("latin-1", "replace")
    _, *parts = (b"\r\n" + body).split(line, _MOST_FIELDS + 1)
    if not boundary or not parts or not parts.pop().startswith(b"--"):
        raise ValueError
    pairs = []
    for part in parts:
        headers, _, value = part.partition(b"\r\n\r\n")
        if len(headers) > _MOST_HEADERS:
            raise ValueError
        said = _DISPOSITION.search(headers.decode())
        found = _header("Content-Disposition", said[1] if said else "")
        if found.get_filename() is None:
            name = found.get_param("name", "", "Content-Disposition")
            pairs.append((str(name), value.decode()))
    return pairs


def _header(name: str, value: str) -> email.message.Message:
    message = email.message.Message()
    message[name] = value
    return message
