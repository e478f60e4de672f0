"""The page at `/`, and the interface behind it.

    GET  /                the page
    POST /                the page with a translation, where no script runs
    GET  /api/card        the model, its scores, the limits
    POST /api/translate   text → sentences with hypotheses and linked words
    GET  /explain?text=…  the viewer for a sentence, if there is a run

`page/index.html` has three marks: `<!-- text -->` for the text of a form,
`<!-- translation -->` for its translation, and `<!-- message -->` for the
reason why there is none.
"""

import asyncio
import base64
import hashlib
import html
import importlib.resources
import pathlib
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of
from keras_transformer.serving import documents
from keras_transformer.serving.forms import as_form
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import (
    Job,
    Service,
    json_response,
    json_written,
    scalar_text,
)
from keras_transformer.serving.versions import card_of, languages_of
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.viewing import page as viewer_page

_TYPES = {".css": "text/css", ".js": "text/javascript"}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# Explanations at a time, of which one runs: each is a whole search.
_MOST_EXPLANATIONS = 4


def viewer_policy() -> str:
    """Write a viewer's policy: its own script, by hash, and nothing else."""
    # The text between the tags.
    script = f"\n{viewer_page.script()}".encode()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; "
        "style-src 'unsafe-inline'; img-src data:; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


class PageApi:
    """The routes of the page."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # Explanations have a thread of their own: one that nobody waits for
        # still runs to its end, and must not take threads that others need.
        self._explainer = ThreadPoolExecutor(1, "explain")
        self._explaining = 0
        folder = importlib.resources.files(__package__) / "page"
        self._document = (folder / "index.html").read_text(encoding="utf-8")
        self._files = {
            f"/{file.name}": Response(file.read_bytes(), media_type=kind)
            for file in folder.iterdir()
            if (kind := _TYPES.get(pathlib.PurePath(file.name).suffix))
        }
        self.routes = [
            Route("/", self.page, methods=["GET"]),
            Route("/", self.form, methods=["POST"]),
            Route("/api/card", self.card),
            Route("/api/translate", self.translate, methods=["POST"]),
            Route("/explain", self.explain),
            *(Route(path, self.file) for path in self._files),
        ]

    async def page(self, request: Request) -> Response:
        """Serve the empty page."""
        return self._page()

    async def form(self, request: Request) -> Response:
        """Show the page with the translation of a form, or why it failed."""
        text = ""

        async def work(job: Job) -> Response:
            nonlocal text
            fields = await job.turn(lambda: as_form(job.body))
            text = "\n".join(fields.get("text", "").splitlines())
            ((found,),) = await documents.translate(job, [text])
            return await job.turn(lambda: self._page(text, found))

        try:
            return await self.service.answer(request, work)
        except RefusalError as error:
            page = self._page(text, message=error.detail)
            page.status_code = error.status_code
            page.headers.update(error.headers)
            return page

    async def file(self, request: Request) -> Response:
        """Serve a script or the style sheet."""
        return self._files[request.scope["path"]]

    async def card(self, request: Request) -> Response:
        """Serve the model's card."""
        model = self.service.versions.current
        card = card_of(model)
        limits = self.service.limits
        return json_response(
            {
                "name": self.service.name,
                "version": model.version,
                "package_version": card.package_version,
                **_sides(card),
                "preset": card.preset,
                "corpus": card.corpus,
                "parameters": card.parameters,
                "scores": list(card.scores),
                "subject": card.subject,
                "examples": list(card.examples),
                "search": dict(card.search),
                "limits": {
                    "max_texts": limits.max_texts,
                    "max_body_bytes": limits.max_body_bytes,
                    "max_source_length": card.search.get("max_source_length"),
                    "seconds": limits.seconds,
                },
                "n_best": card.search.get("n_best", 1),
                "explain": self.service.explain is not None,
            }
        )

    async def translate(self, request: Request) -> Response:
        """Translate a document, sentence by sentence."""
        return await self.service.answer(request, _translate)

    async def explain(self, request: Request) -> Response:
        """Serve the viewer for a sentence."""
        explain = self.service.explain
        if explain is None:
            raise RefusalError(
                404,
                "Only the export is here, and explaining needs the model; "
                "start the server with --run-dir, and with no --ensemble.",
            )
        text = scalar_text(request.query_params.get("text", ""))
        if not text.strip():
            raise RefusalError(400, "Expected a text, received none.")
        if self._explaining == _MOST_EXPLANATIONS:
            raise RefusalError(
                503, "Other explanations are waiting; try again.", retry=True
            )
        weights = card_of(self.service.versions.current).weights
        # If the client leaves before it begins, it never begins.
        work = asyncio.get_running_loop().run_in_executor(
            self._explainer, explain, text, weights
        )
        self._explaining += 1
        try:
            document = await self.service.unless_gone(request, work)
        except UserError as error:
            raise RefusalError(409, str(error)) from None
        finally:
            self._explaining -= 1
        return _html(document, viewer_policy())

    def _page(
        self, text: str = "", translation: str = "", message: str = ""
    ) -> Response:
        document = self._document
        # The client's text comes last: it may hold the other marks.
        for mark, value in (
            ("message", message),
            ("translation", translation),
            ("text", text),
        ):
            document = document.replace(f"<!-- {mark} -->", html.escape(value))
        return _html(document, PAGE_POLICY)


async def _translate(job: Job) -> Response:
    fields = await job.turn(job.as_json)
    n_best = fields.get("n_best")
    if not isinstance(fields.get("text"), str):
        raise RefusalError(400, "Expected a text, received none.")
    is_count = isinstance(n_best, int) and not isinstance(n_best, bool)
    if n_best is not None and (not is_count or n_best < 1):
        raise RefusalError(400, "Expected n_best to be null or at least 1.")
    text = await job.turn(lambda: scalar_text(fields["text"]))
    (sentences,) = await documents.search(job, [text], n_best or 1)
    languages = languages_of(job.model)
    words: list = [None] * len(sentences)
    if fields.get("alignment"):
        words = await documents.linked_words(job, sentences)
    answer = {
        "sentences": [
            {
                "source": each.source,
                "start": each.span.start,
                "end": each.span.end,
                "hypotheses": [
                    {"text": text, "score": score}
                    for text, score in each.hypotheses
                ],
                "words": of_sentence,
                "source_words": documents.texts_of_words(
                    each.source, languages[0]
                ),
                "target_words": documents.texts_of_words(
                    each.best, languages[1]
                ),
            }
            for each, of_sentence in zip(sentences, words, strict=True)
        ],
        "translation": documents.whole_of(job, text, sentences),
    }
    return await job.finish(json_written(answer))


def _sides(card: ModelCard) -> dict[str, str]:
    """Describe both languages to the page: code, name and direction."""
    sides = {"source": card.source_lang, "target": card.target_lang}
    found = {}
    for side, code in sides.items():
        language = language_of(code)
        found[f"{side}_lang"] = language.code
        found[f"{side}_name"] = language.name
        found[f"{side}_dir"] = language.direction
    return found


def _html(document: str, policy: str) -> Response:
    return HTMLResponse(document, headers={"Content-Security-Policy": policy})
