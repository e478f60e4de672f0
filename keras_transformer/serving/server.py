"""The server process, from its address to the routes of the interfaces."""

import asyncio
import pathlib
import re
import socket
import sys
import traceback
from collections.abc import Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from keras_transformer.config import UserError, logger
from keras_transformer.serving import (
    libretranslate_api,
    page_api,
    tensorflow_api,
)
from keras_transformer.serving.limits import CLOSE, RefusalError
from keras_transformer.serving.service import Service, json_response

# Time to answer the accepted requests once the process has to end. With the
# batch that the model is at, and the end itself, that makes 20 seconds.
SHUTDOWN_SECONDS = 14
_HEADERS = [
    ("x-content-type-options", "nosniff"),
    # With "no-referrer" our own page's requests might come without an origin.
    ("referrer-policy", "same-origin"),
]


def bind(host: str, port: int) -> socket.socket:
    """Take an address, port 0 for any free one; nobody can connect yet."""
    if not 0 <= port < 1 << 16:
        raise UserError(f"Expected a `port` from 0 to 65535, received {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        # Asyncio sends small answers at once (TCP_NODELAY) only if the socket
        # names its protocol. Otherwise each waits 40 ms for the client.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, UnicodeError) as error:  # A name that no host can have.
        why = getattr(error, "strerror", None) or error
        raise UserError(
            f"Expected a free address, cannot listen at {host}, port {port} "
            f"({why}); choose another `port` or `host`."
        ) from None
    return listening


def serve(listening: socket.socket, service: Service) -> None:
    """Serve until SIGINT or SIGTERM, then finish the accepted requests.

    Clients can connect from now on to the socket of `bind`.
    """
    host, port = listening.getsockname()[:2]
    listening.listen()
    # A thread that reads a long text gives way to the others sooner.
    sys.setswitchinterval(5e-4)
    if host not in ("127.0.0.1", "::1"):
        logger.warning(
            "Serving beyond this machine: put a proxy in front, which waits "
            "for slow clients; examples/serving has one for nginx."
        )

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(log_lost)
        following = asyncio.ensure_future(service.versions.follow())
        name = f"[{host}]" if ":" in host else host
        logger.info("Serving at http://%s:%d", name, port)
        await make(service).serve(sockets=[listening])
        following.cancel()

    asyncio.run(run())


def make(service: Service) -> uvicorn.Server:
    """Make the server, which belongs to one event loop."""
    app: ASGIApp = _Door(service)
    if service.origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(service.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Content-Type"],
            expose_headers=["Retry-After"],
        )
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        proxy_headers=False,
        headers=_HEADERS,
        server_header=False,
        limit_concurrency=service.limits.max_connections,
        h11_max_incomplete_event_size=1 << 14,  # Of a head.
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)


def names_of(host: str, others: Sequence[str] = ()) -> list[str]:
    """List the names by which clients may call the server.

    A server at all addresses takes any name unless `others` gives some.
    """
    if host in ("", "0.0.0.0", "::") and not others:
        return ["*"]
    return ["localhost", "127.0.0.1", "[::1]", host, f"[{host}]", *others]


def log_lost(loop: asyncio.AbstractEventLoop, context: dict) -> None:
    """Log an error that nobody waited for, without its texts."""
    if error := context.get("exception"):
        logger.error("A task ended because of %s", _mistake(error))


def _mistake(error: BaseException) -> str:
    """Name the kind and place of an error; its message may hold a text."""
    kind = getattr(error, "strerror", None) or type(error).__name__
    for place in traceback.extract_tb(error.__traceback__)[-1:]:
        kind += f" in {pathlib.Path(place.filename).name}, line {place.lineno}"
    return kind


class _Door:
    """Refuses other sites and names, and logs errors that nobody caught."""

    def __init__(self, service: Service) -> None:
        self._origins = service.origins
        self._hosts = [host.lower() for host in service.hosts]
        # Starlette raises an `Exception` again once it is answered.
        answered = HTTPException, RefusalError, Exception
        self._app = Starlette(
            routes=[
                *tensorflow_api.routes(service),
                *libretranslate_api.routes(service),
                *page_api.routes(service),
            ],
            exception_handlers=dict.fromkeys(answered, _in_words),
        )
        # No address has two spellings, and no answer uses a client's "Host".
        self._app.router.redirect_slashes = False

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        app: ASGIApp = self._app
        if refusal := self._refusal(scope):
            app = await _in_words(Request(scope), refusal)
        try:
            await app(scope, receive, send)
        except Exception as error:
            logger.error("No answer because of %s", _mistake(error))

    def _refusal(self, scope: Scope) -> RefusalError | None:
        # A page of another site cannot read an answer, but could keep the model
        # busy, so it may only link to our page. It may also point its own name
        # at this machine, and browsers then send that name.
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if not {"*", re.sub(r":\d*$", "", host)}.intersection(self._hosts):
            why = "This server has other names; give it more by --allow-host."
            return RefusalError(why)
        if "content-length" in headers and "transfer-encoding" in headers:
            why = "Expected a body of one length, received two."
            return RefusalError(why, 400, CLOSE)
        asks = scope["method"], scope["path"], headers.get("sec-fetch-mode")
        is_link = asks == ("GET", "/", "navigate")
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_foreign = site == "cross-site"
        if site is None and origin is not None:
            # Over plain HTTP, browsers tell the site to loopback addresses
            # alone. A page without an origin sends "null".
            scheme, _, place = origin.lower().partition("://")
            # Browsers leave this port out, some proxies write it.
            port = {"http": ":80", "https": ":443"}.get(scheme, "")
            is_foreign = place != host.removesuffix(port)
        is_friend = {"*", origin}.intersection(self._origins)
        if is_link or is_friend or not is_foreign:
            return None
        why = "This server answers its own page; --cors lets others ask."
        return RefusalError(why, 403)


async def _in_words(request: Request, error: Exception) -> Response:
    """Say why there is no answer, but nothing of our own mistakes."""
    if not isinstance(error, HTTPException | RefusalError):
        return json_response({"error": "Internal error"}, 500)
    content = {"error": error.detail}
    return json_response(content, error.status_code, error.headers)
