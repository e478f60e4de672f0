"""LibreTranslate's interface, for the clients and plugins that speak it.

    POST /translate           q (a text or a list), source, target, format,
                              alternatives
    GET  /languages           the model's one direction
    GET  /health              whether the model translates
    GET  /frontend/settings   settings for a page of LibreTranslate's

Requests are JSON or a form of either kind. What we do not offer is refused in
LibreTranslate's words. There is no `/detect`: a model of one direction cannot
tell languages apart. The source language `auto` is the model's own; a text is
returned unchanged if both languages are the same. HTML has no alternatives.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of
from keras_transformer.serving import documents
from keras_transformer.serving.requests import (
    RefusalError,
    as_form,
    as_multipart,
    json_response,
    scalar_text,
)
from keras_transformer.serving.sentence_answers import translate_html
from keras_transformer.serving.served_model import DEFAULT_SIGNATURE
from keras_transformer.serving.service import (
    Job,
    Service,
    card_of,
    check_signature,
)

HEALTH_SECONDS = 10.0
_WORD = b"a"
_FORM = "application/x-www-form-urlencoded"
_FORM_DATA = "multipart/form-data"
_REFUSED = {
    "/detect": (
        501,
        "This model translates in one direction and cannot tell languages "
        "apart; GET /languages names the two.",
    ),
    # As LibreTranslate does where these are turned off.
    "/suggest": (403, "Suggestions are disabled on this server."),
    "/translate_file": (403, "Files translation are disabled on this server."),
}


class LibreTranslateApi:
    """The routes of LibreTranslate's interface."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.routes = [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/health", self.health),
            Route("/frontend/settings", self.settings),
            *(Route(path, self.refuse, methods=["POST"]) for path in _REFUSED),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several."""
        return await self.service.answer(request, self._translate)

    async def _translate(self, job: Job) -> Response:
        with self.service.versions.use() as model:
            card = card_of(model)

            def read() -> tuple[dict[str, Any], int]:
                fields = self._fields(job)
                languages = card.source_lang, card.target_lang
                return fields, self._check(fields, *languages)

            fields, count = await job.turn(read)
            texts, source = fields["texts"], fields["source"]
            source = card.source_lang if source == "auto" else source
            if source == fields["target"]:
                found = [[text] for text in texts]
            elif fields["format"] == "html":
                found = await translate_html(job, model, texts)
            else:
                found = await documents.translate(job, model, texts, 1 + count)
        answer: dict[str, Any] = {
            "translatedText": [best for best, *_ in found]
        }
        if count:
            answer["alternatives"] = [others for _, *others in found]
        detected = {"confidence": 100.0, "language": card.source_lang}
        if fields["source"] == "auto":
            answer["detectedLanguage"] = [detected] * len(texts)
        if not isinstance(fields["q"], list):
            answer = {key: values[0] for key, values in answer.items()}
        return await job.turn(lambda: json_response(answer))

    async def health(self, request: Request) -> Response:
        """Wait until a word or another text is translated.

        A model that hangs translates neither.
        """
        loop, batcher = asyncio.get_running_loop(), self.service.batcher
        end, before = loop.time() + HEALTH_SECONDS, batcher.answered
        with self.service.versions.use() as model:
            check_signature(model, DEFAULT_SIGNATURE)
            row = (_WORD,) * len(model.inputs(DEFAULT_SIGNATURE))
            # If the queue is full, others' texts show that the model works.
            task = asyncio.ensure_future(
                batcher.run(model, DEFAULT_SIGNATURE, [row])
            )
            try:
                while loop.time() < end:
                    await asyncio.sleep(0.02)
                    if batcher.answered > before:
                        return json_response({"status": "ok"})
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        raise RefusalError(
            503, f"The model has answered nothing for {HEALTH_SECONDS:g} s."
        )

    async def languages(self, request: Request) -> Response:
        """List both languages and the targets of each."""
        card = card_of(self.service.versions.current)
        targets = {card.source_lang: [card.target_lang]}
        return json_response(
            [
                {
                    "code": code,
                    "name": language_of(code).name,
                    "targets": targets.get(code, []),
                }
                for code in (card.source_lang, card.target_lang)
            ]
        )

    async def settings(self, request: Request) -> Response:
        """Tell a page what this server offers."""
        card = card_of(self.service.versions.current)
        sides = {"source": card.source_lang, "target": card.target_lang}
        return json_response(
            {
                # JSON may spell each character in six bytes.
                "charLimit": self.service.limits.max_body_bytes // 6,
                "frontendTimeout": 500,
                "apiKeys": False,
                "keyRequired": False,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    side: {"code": code, "name": language_of(code).name}
                    for side, code in sides.items()
                },
            }
        )

    async def refuse(self, request: Request) -> Response:
        """Refuse what this server does not offer."""
        raise RefusalError(*_REFUSED[request.scope["path"]])

    def _fields(self, job: Job) -> dict[str, Any]:
        """Read the parameters from the address, a form or JSON."""
        request, body = job.request, job.body
        content_type = request.headers.get("content-type", "")
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            return job.as_json()
        if kind not in ("", _FORM, _FORM_DATA):
            raise RefusalError(
                415,
                f"Expected application/json, {_FORM} or {_FORM_DATA}, "
                f"received {kind}.",
            )
        fields: dict[str, Any] = as_form(request.scope.get("query_string", b""))
        if kind == _FORM_DATA:
            fields |= as_multipart(body, content_type)
        else:
            fields |= as_form(body)
        if "q" in fields:  # Browsers send these line ends.
            fields["q"] = fields["q"].replace("\r\n", "\n")
        return fields

    def _check(
        self, fields: dict[str, Any], source_lang: str, target_lang: str
    ) -> int:
        """Refuse invalid parameters, in LibreTranslate's words.

        It also replaces the languages by the model's names for them, and adds
        the list `texts`.

        Returns:
            The number of alternatives asked for.
        """
        for name in "q", "source", "target":
            if not fields.get(name):
                raise RefusalError(
                    400, f"Invalid request: missing {name} parameter"
                )
        q = fields["q"]
        texts = q if isinstance(q, list) else [q]
        self.service.limits.check_texts(len(texts))
        if not all(isinstance(text, str) for text in texts):
            raise RefusalError(
                400, "Invalid request: q must be a text or a list of texts"
            )
        fields["texts"] = [scalar_text(text) for text in texts]
        known = source_lang, target_lang
        for name, codes in (("source", ("auto", *known)), ("target", known)):
            code = spelt_by_model(str(fields[name]), codes)
            if code is None:
                raise RefusalError(400, f"{fields[name]} is not supported")
            fields[name] = code
        source, target = fields["source"], fields["target"]
        source = source_lang if source == "auto" else source
        if (source, target) == (target_lang, source_lang):
            names = [language_of(code).name for code in (target, source)]
            raise RefusalError(
                400,
                f"{names[0]} ({target}) is not available as a target language "
                f"from {names[1]} ({source})",
            )
        fields["format"] = fields.get("format") or "text"
        if fields["format"] not in ("text", "html"):
            raise RefusalError(
                400, f"{fields['format']} format is not supported"
            )
        count = str(fields.get("alternatives") or 0)
        if not count.isdecimal():
            raise RefusalError(
                400, "Invalid request: alternatives must be a number"
            )
        return int(count[:4])


def spelt_by_model(code: str, codes: Sequence[str]) -> str | None:
    """Find which of the model's codes another spelling means, if any.

    One in another country is the same language, if it is no code of its own.
    """
    for each in codes:
        if code.lower() == each.lower():
            return each
    try:
        language = language_of(code)
    except UserError:
        return None
    same = (x for x in codes if language.is_same(language_of(x)))
    return next(same, None)
