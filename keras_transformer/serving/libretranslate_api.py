"""LibreTranslate's interface, for the clients and plugins that speak it.

`docs/reference/http.md` lists it. A text is returned unchanged if both
languages are the same.
"""

import asyncio
import contextlib
import io
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from python_multipart import parse_form
from python_multipart.multipart import File
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of, read_code
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import (
    Job,
    Service,
    json_response,
    scalar_text,
)
from keras_transformer.serving.versions import DEFAULT_SIGNATURE, card_of
from keras_transformer.translation.markup import Segment, read, with_symbols
from keras_transformer.translation.sentences import Sentence, tag_of

# The most characters of HTML in a request: a second's work, if all are tags.
MAX_HTML = 1 << 17
HEALTH_SECONDS = 10.0
_MOST_FIELDS = 64  # A form of ours has five.


def routes(service: Service) -> list[Route]:
    """Make the routes of LibreTranslate's interface."""
    translate = partial(service.answer, work=_translate)
    return [
        Route("/translate", translate, methods=["POST"]),
        Route("/languages", partial(_list_languages, service)),
        Route("/health", partial(_check_health, service)),
    ]


async def _check_health(service: Service, request: Request) -> Response:
    """Wait until a word or another text is translated."""
    loop, batcher = asyncio.get_running_loop(), service.batcher
    end, before = loop.time() + HEALTH_SECONDS, batcher.answered
    model = service.versions.current
    row = (b"a",) * len(model.inputs(DEFAULT_SIGNATURE))
    # If the queue is full, others' texts show that the model works.
    task = asyncio.ensure_future(batcher.run(model, DEFAULT_SIGNATURE, [row]))
    while batcher.answered == before and loop.time() < end:
        await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if batcher.answered > before:
        return json_response({"status": "ok"})
    why = f"The model has answered nothing for {HEALTH_SECONDS:g} s."
    raise RefusalError(why, 503)


async def _list_languages(service: Service, request: Request) -> Response:
    card = card_of(service.versions.current)
    sides = {card.source_lang: [card.target_lang], card.target_lang: []}
    languages = [
        {"code": x, "name": language_of(x).names[0], "targets": targets}
        for x, targets in sides.items()
    ]
    return json_response(languages)


async def _translate(job: Job) -> dict[str, Any]:
    """Translate one text or several."""
    fields, texts, source, target = await job.apart(_read, job)
    count = int(str(fields.get("alternatives") or 0)[:4])
    job.terms = fields.get("terms")
    if source == target:
        translations = [[text] for text in texts]
    elif fields.get("format") == "html":
        translations = await translate_html(job, texts)
    else:
        found = await job.search(texts, 1 + count)

        def joined(text: str, parts: Sequence[Sentence]) -> list[str]:
            """Join the best hypotheses of sentences, the next and so on."""
            most = max((len(part.hypotheses) for part in parts), default=1)
            ranked = (job.join(text, parts, x) for x in range(1, most + 1))
            return list(dict.fromkeys(ranked))

        translations = await job.apart(list, map(joined, texts, found))
    answer: dict[str, Any] = {"translatedText": [x for x, *_ in translations]}
    if count:
        answer["alternatives"] = [others for _, *others in translations]
    if str(fields["source"]).lower() == "auto":
        detected = {"confidence": 100.0, "language": source}
        answer["detectedLanguage"] = [detected] * len(translations)
    if not isinstance(fields["q"], list):
        answer = {key: values[0] for key, values in answer.items()}
    return answer


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate whole pages of HTML or parts, as `Job.search` does texts."""
    if (size := sum(map(len, texts))) > MAX_HTML:
        most = f"at most {MAX_HTML} characters of HTML at a time"
        raise RefusalError(f"Send {most}, received {size}.")
    reading = map(read, texts, itertools.repeat(card_of(job.model).terms))
    pages: list[list[Segment]] = await job.apart(list, reading)
    segments, tags = list[Segment](), list[str]()
    for page in pages:
        segments += page
        # As in plain text, the tag of a whole goes before each of its parts.
        tags += [tag_of("".join(x.text for x in page))] * len(page)
    found = await job.search([x.text for x in segments], tags=tags)
    pairs = zip(segments, found, strict=True)
    asking = [y for x, those in pairs if x.has_elements for y in those]
    await job.link(asking, with_symbols)
    putting = map(Segment.put, segments, found, itertools.repeat(job.splitter))
    parts: Iterator[str] = iter(await job.apart(list, putting))
    return [["".join(itertools.islice(parts, len(page)))] for page in pages]


def _read(job: Job) -> tuple[dict[str, Any], list[str], str, str]:
    """Read parameters, texts and the languages as the model spells them."""
    sides, fields = job.splitter.languages, _fields(job)
    for name in "q", "source", "target":
        if not fields.get(name):
            raise RefusalError(f"Invalid request: missing {name} parameter")
    texts = fields["q"] if isinstance(fields["q"], list) else [fields["q"]]
    job.check_texts(len(texts))
    if not all(isinstance(text, str) for text in texts):
        raise RefusalError("Invalid request: q must be text or a list of texts")
    auto = {"auto": sides[0]}.get(str(fields["source"]).lower())
    source = auto or spelt_by_model(fields["source"], sides)
    target = spelt_by_model(fields["target"], sides)
    if (target, source) == sides:
        names = [language_of(code).names[0] for code in sides]
        raise RefusalError(
            f"{names[0]} ({target}) is not available as a target language "
            f"from {names[1]} ({source})"
        )
    if fields.get("format") not in (None, "", "text", "html"):
        raise RefusalError(f"{fields['format']!s:.32} format is not supported")
    if not str(fields.get("alternatives") or 0).isdecimal():
        raise RefusalError("Invalid request: alternatives must be a number")
    return fields, list(map(scalar_text, texts)), source, target


def _fields(job: Job) -> dict[str, Any]:
    """Read the parameters from the address, a form or JSON."""
    content_type = job.request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return job.as_json()
    query = job.request.scope["query_string"]
    fields = as_form(query) | as_form(bytes(job.body), content_type)
    # Browsers send these line ends.
    return fields | {"q": fields.get("q", "").replace("\r\n", "\n")}


def as_form(body: bytes, kind: str = "") -> dict[str, str]:
    """Read a form in UTF-8, URL-encoded or in parts, without files."""
    pairs: list[tuple[str, str]] = []

    def add(part: Any) -> None:
        if isinstance(part, File) or len(pairs) == _MOST_FIELDS:
            raise ValueError
        said = part.field_name or b"", part.value or b""
        pairs.append((said[0].decode(), said[1].decode()))

    try:
        if kind.lower().startswith("multipart/"):
            headers = {"Content-Type": kind.encode("latin-1")}
            parse_form(headers, io.BytesIO(body), add, add)
        else:
            pairs += parse_qsl(
                body.decode(), errors="strict", max_num_fields=_MOST_FIELDS
            )
        if len(fields := dict(pairs)) < len(pairs):
            raise ValueError
    except ValueError:
        raise RefusalError(
            f"Expected a form in UTF-8 of at most {_MOST_FIELDS} fields, no "
            "file and no name twice; send several texts as a list in JSON."
        ) from None
    return fields


def spelt_by_model(code: Any, codes: Sequence[str]) -> str:
    """Find which of the model's codes another spelling means.

    A code of another country means the same language, unless the model knows
    that code itself.
    """
    meant = [x for x in codes if x.lower() == str(code).lower()]
    with contextlib.suppress(UserError):
        language = read_code(str(code))  # Not kept: anybody may send any.
        meant += [x for x in codes if language.is_same(language_of(x))]
    if not meant:
        raise RefusalError(f"{str(code)[:32]} is not supported")
    return meant[0]
