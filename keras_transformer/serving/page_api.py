"""The page at `/`, and its own interface, which `docs/reference/http.md` lists.

The page needs JavaScript.
"""

import asyncio
import importlib.resources
import math
import pathlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import (
    Job,
    Service,
    json_response,
    scalar_text,
)
from keras_transformer.serving.versions import card_of
from keras_transformer.viewing import viewer

# What the page shows of a model card.
_OF_CARD = "parameters", "scores", "subject", "examples", "terms", "search"
_TYPES = {".css": "text/css", ".js": "text/javascript"}
PAGE_POLICY = (
    f"{viewer.NOTHING}script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'"
)


def routes(service: Service) -> list[Route]:
    """Make the routes of the page."""
    folder = importlib.resources.files(__package__) / "page"
    page = (folder / "index.html").read_text(encoding="utf-8")
    files: dict[str, Response] = {"": _html(page, PAGE_POLICY)}
    for file in folder.iterdir():
        if kind := _TYPES.get(pathlib.PurePath(file.name).suffix):
            files[file.name] = Response(file.read_bytes(), media_type=kind)
    # Explanations have a thread of their own: one that nobody waits for still
    # runs to its end, and must not take threads that others need.
    explainer = ThreadPoolExecutor(1, "explain")
    translate = partial(service.answer, work=_translate)
    return [
        *(Route(f"/{x}", files[x], methods=["GET"]) for x in files),
        Route("/api/card", partial(_show_card, service)),
        Route("/api/translate", translate, methods=["POST"]),
        Route("/explain", partial(_explain, service, explainer)),
    ]


async def _show_card(service: Service, request: Request) -> Response:
    model, limits = service.versions.current, service.limits
    card = card_of(model)
    source, target = map(language_of, (card.source_lang, card.target_lang))
    shown = {
        "name": service.name,
        "version": model.version,
        "source_lang": source.code,
        "source_name": source.names[0],
        "source_dir": source.direction,
        "target_lang": target.code,
        "target_name": target.names[0],
        "target_dir": target.direction,
        **{name: getattr(card, name) for name in _OF_CARD},
        "limits": {
            "max_texts": limits.max_texts,
            "max_body_bytes": limits.max_body_bytes,
            "max_source_length": card.search.get("max_source_length"),
        },
        "n_best": card.search.get("n_best", 1),
        "explain": service.explain is not None,
    }
    return json_response(shown)


async def _explain(
    service: Service, explainer: ThreadPoolExecutor, request: Request
) -> Response:
    """Serve the viewer for a sentence."""
    if service.explain is None:
        why = "To explain, serve the model by --run-dir, without --ensemble."
        raise RefusalError(why, 404)
    text = request.query_params.get("text", "").replace("\0", " ")
    if not text.strip():
        raise RefusalError("Expected a text, received none.")
    weights = card_of(service.versions.current).weights
    # If the client leaves before it begins, it never begins.
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(explainer, service.explain, text, weights)
    try:
        document = await service.unless_gone(request, work)
    except UserError as error:
        raise RefusalError(str(error), 409) from None
    return _html(document, viewer.policy())


async def _translate(job: Job) -> dict[str, Any]:
    """Translate a text, sentence by sentence."""
    fields = await job.apart(job.as_json)
    n_best = fields.get("n_best")
    if not isinstance(fields.get("text"), str):
        raise RefusalError("Expected a text, received none.")
    if n_best is not None and (type(n_best) is not int or n_best < 1):
        raise RefusalError("Expected n_best to be null or at least 1.")
    job.terms = fields.get("terms")
    text = await job.apart(scalar_text, fields["text"])
    (sentences,) = await job.search([text], n_best or 1)
    if fields.get("alignment"):
        await job.link(sentences)
    source_lang, target_lang = job.splitter.languages
    return {
        "sentences": [
            {
                "source": each.source,
                "start": each.span.start,
                "end": each.span.end,
                "hypotheses": [
                    # JSON has no -Infinity, of a search left with nothing.
                    {"text": text, "score": x if math.isfinite(x) else None}
                    for text, x in each.hypotheses
                ],
                "words": each.links,
                "source_words": _words(each.source, source_lang),
                "target_words": _words(each.best, target_lang),
            }
            for each in sentences
        ],
        "translation": job.join(text, sentences),
    }


def _words(text: str, language: str) -> list[str]:
    return [text[slice(*place)] for place in words_of(text, language)]


def _html(document: str, policy: str) -> Response:
    return HTMLResponse(document, headers={"Content-Security-Policy": policy})
