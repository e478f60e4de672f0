"""The interfaces as one ASGI application."""

import logging
import pathlib
import re
import time
import traceback
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_transformer.serving.libretranslate_api import LibreTranslateApi
from keras_transformer.serving.limits import GONE, RefusalError
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.page_api import PageApi
from keras_transformer.serving.service import Service, json_response
from keras_transformer.serving.tensorflow_api import TensorFlowApi

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer" our own page's form would come without an origin.
    (b"referrer-policy", b"same-origin"),
)

logger = logging.getLogger("keras_transformer")


def build(
    service: Service,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
) -> ASGIApp:
    """Make the application, which belongs to one event loop.

    Args:
        service: Answers the requests.
        origins: Other sites whose pages may ask; "*" for any.
        hosts: Names of this server; "*" for any.
    """
    metrics = Metrics(service)
    interfaces = Starlette(
        routes=[
            *TensorFlowApi(service).routes,
            *LibreTranslateApi(service).routes,
            *PageApi(service).routes,
            Route("/monitoring/prometheus/metrics", metrics.answer),
        ],
        exception_handlers={
            HTTPException: _refused,
            RefusalError: _refused,
            Exception: _mistake,  # And then on to the door.
        },
    )
    # No address has two spellings, and no answer uses a client's "Host".
    interfaces.router.redirect_slashes = False
    app: ASGIApp = _Door(interfaces, metrics, origins, hosts)
    if origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type"],
        )
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException | RefusalError)
    content = {"error": error.detail}
    return json_response(content, error.status_code, error.headers)


async def _mistake(request: Request, error: Exception) -> Response:
    return json_response({"error": "Internal error"}, 500)


def log_mistake(what: str, error: BaseException) -> None:
    """Log the kind and place of an error, not its message.

    That may hold somebody's text.
    """
    where = ""
    for place in traceback.extract_tb(error.__traceback__)[-1:]:
        file = pathlib.Path(place.filename).name
        where = f" in {file}, line {place.lineno}"
    logger.error("%s because of %s%s", what, type(error).__name__, where)


class _Door:
    """Counts requests, adds headers, logs our mistakes, refuses other sites.

    A page of another site could not read the answer, but could make a browser
    send what makes the model work for nothing. A link to our own page may be
    anywhere. The page may also lead its own name to this machine; then the
    browser sends that name.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        origins: Sequence[str],
        hosts: Sequence[str],
    ) -> None:
        self.app, self.metrics, self.origins = app, metrics, origins
        self.hosts = [host.lower() for host in hosts]

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http":
            return
        begun, status = time.perf_counter(), 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        app, refusal = self.app, self._refusal(scope)
        if refusal:
            app = await _refused(Request(scope), refusal)
        try:
            await app(scope, receive, send_on)
        except Exception as error:
            log_mistake("No answer", error)
        finally:
            seconds = time.perf_counter() - begun
            self.metrics.count(scope["path"], status or GONE, seconds)

    def _refusal(self, scope: Scope) -> RefusalError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not {"*", re.sub(r":\d*$", "", host)}.intersection(self.hosts):
            return RefusalError(
                400,
                "This server has another name; start it with --allow-host to "
                "give it one more.",
            )
        mode, path = headers.get("sec-fetch-mode"), scope["path"]
        is_link = mode == "navigate" and path == "/"
        is_friend = {"*", headers.get("origin")}.intersection(self.origins)
        if is_link or is_friend or not _is_foreign(headers, host):
            return None
        return RefusalError(
            403,
            "This server answers its own page; start it with --cors for pages "
            "of other sites.",
        )


def _is_foreign(headers: Headers, host: str) -> bool:
    """Return whether a page of another site makes a browser ask."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None or origin is None:
        return site == "cross-site"
    # Over plain HTTP, browsers tell the site to loopback addresses alone. A
    # page without an origin sends "null".
    return origin.lower().partition("://")[2] != host
