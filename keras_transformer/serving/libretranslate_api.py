"""LibreTranslate's interface, for the clients and plugins that speak it.

    POST /translate           q (a text or a list), source, target, format
    GET  /languages           the one direction that the model has
    GET  /frontend/settings   what a page of LibreTranslate's asks for

JSON or a form. Whatever is asked for and not to be had is refused as
LibreTranslate refuses it. There is no `/detect`: a model of one direction
cannot tell languages apart. The source language `auto` is the model's.
"""

from typing import Any

import babel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.serving.documents import Documents
from keras_transformer.serving.requests import (
    RefusalError,
    as_form,
    as_json,
    json_response,
    scalar_text,
    unless_gone,
)
from keras_transformer.serving.service import Service, card_of


class LibreTranslateApi:
    """Its routes."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.documents = Documents(service)
        self.routes = [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/detect", self.detect, methods=["POST"]),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several."""
        fields = await self._fields(request)
        with self.service.versions.use() as model:
            card = card_of(model)
            self._check(fields, card.source_lang, card.target_lang)
            q = fields["q"]
            texts = [
                scalar_text(t) for t in (q if isinstance(q, list) else [q])
            ]
            found = await unless_gone(
                request,
                self.documents.translate(model, texts),
                self.service.limits,
            )
        answer: dict[str, Any] = {"translatedText": found}
        detected = {"confidence": 100.0, "language": card.source_lang}
        if fields["source"] == "auto":
            answer["detectedLanguage"] = [detected] * len(found)
        if not isinstance(q, list):
            answer = {key: values[0] for key, values in answer.items()}
        return json_response(answer)

    async def languages(self, request: Request) -> Response:
        """List both languages, and what each can be translated to."""
        card = card_of(self.service.versions.current)
        targets = {card.source_lang: [card.target_lang]}
        return json_response(
            [
                {
                    "code": code,
                    "name": name_of(code),
                    "targets": targets.get(code, []),
                }
                for code in (card.source_lang, card.target_lang)
            ]
        )

    async def settings(self, request: Request) -> Response:
        """Tell a page what there is."""
        card = card_of(self.service.versions.current)
        sides = {"source": card.source_lang, "target": card.target_lang}
        return json_response(
            {
                # So many fit, though JSON may spell each in six bytes.
                "charLimit": self.service.limits.max_body_bytes // 6,
                "frontendTimeout": 500,
                "apiKeys": False,
                "keyRequired": False,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    side: {"code": code, "name": name_of(code)}
                    for side, code in sides.items()
                },
            }
        )

    async def detect(self, request: Request) -> Response:
        """Say that nothing can be said."""
        raise RefusalError(
            501,
            "This model translates in one direction and cannot tell languages "
            "apart; GET /languages names the two.",
        )

    async def _fields(self, request: Request) -> dict[str, Any]:
        """What is asked for: of the address, a form or JSON."""
        body = await self.service.bodies.read(request)
        kind = request.headers.get("content-type", "").partition(";")[0]
        kind = kind.strip().lower()
        if kind == "application/json" or kind.endswith("+json"):
            return as_json(body)
        if kind not in ("", "application/x-www-form-urlencoded"):
            raise RefusalError(
                415,
                "Expected application/json or "
                f"application/x-www-form-urlencoded, received {kind}.",
            )
        query = request.scope.get("query_string", b"")
        fields: dict[str, Any] = as_form(query) | as_form(body)
        if "q" in fields:  # Browsers end lines in \r\n.
            fields["q"] = "\n".join(fields["q"].splitlines())
        return fields

    def _check(
        self, fields: dict[str, Any], source_lang: str, target_lang: str
    ) -> None:
        """Refuse what cannot be done, in LibreTranslate's words."""
        for name in "q", "source", "target":
            if not fields.get(name):
                raise RefusalError(
                    400, f"Invalid request: missing {name} parameter"
                )
        q = fields["q"]
        texts = q if isinstance(q, list) else [q]
        if not all(isinstance(text, str) for text in texts):
            raise RefusalError(
                400, "Invalid request: q must be a text or a list of texts"
            )
        source, target = fields["source"], fields["target"]
        known = source_lang, target_lang
        for code, codes in (source, ("auto", *known)), (target, known):
            if code not in codes:
                raise RefusalError(400, f"{code} is not supported")
        source = source_lang if source == "auto" else source
        if (source, target) != known:
            raise RefusalError(
                400,
                f"{name_of(target)} ({target}) is not available as a target "
                f"language from {name_of(source)} ({source})",
            )
        text_format = fields.get("format") or "text"
        if text_format != "text":
            raise RefusalError(400, f"{text_format} format is not supported")


def name_of(code: str) -> str:
    """The English name of a language; its code where Babel knows none."""
    try:
        return babel.Locale.parse(code, sep="-").get_display_name("en") or code
    except (ValueError, babel.UnknownLocaleError):
        return code
