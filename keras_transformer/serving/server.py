"""Runs the server process: the address, the signals, the model."""

import asyncio
import logging
import pathlib
import socket
import sys
from collections.abc import Callable, Sequence

import uvicorn

from keras_transformer.config import UserError
from keras_transformer.machine import devices
from keras_transformer.machine.batching_file import Batching
from keras_transformer.serving import app
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.connections import Connection
from keras_transformer.serving.limits import Limits
from keras_transformer.serving.service import Service
from keras_transformer.serving.versions import Versions

# Connections that may wait to be accepted, Uvicorn's default.
_BACKLOG = 2_048
# Time to answer the accepted requests once the process has to end. With what
# the model is at by then, and the end itself, that makes 20 seconds.
SHUTDOWN_SECONDS = 16

logger = logging.getLogger("keras_transformer")


def bind(host: str, port: int) -> socket.socket:
    """Take an address, port 0 for any free one; nobody can connect yet.

    Raises:
        UserError: If the address is taken or not valid.
    """
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
    except OSError as error:
        raise _taken(host, port, error) from None
    return listening


def _taken(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"Expected a free address, cannot listen at {host}, port {port} "
        f"({error.strerror}); choose another `port` or `host`."
    )


def serve(
    listening: socket.socket,
    folder: pathlib.Path,
    *,
    name: str,
    batching: Batching,
    limits: Limits,
    explain: Callable[[str, str], str] | None = None,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the accepted requests.

    Args:
        listening: The socket of `bind`. Clients can connect once the model
            answers.
        folder: Folder of all versions.
        name: The model's name for clients.
        batching: As in `Batcher`.
        limits: As in `Service`.
        explain: As in `Service`.
        origins: Other sites whose pages may ask.
        hosts: Names of this server, as `names_of` finds them.

    Raises:
        UserError: If there is nothing to serve.
        KeyboardInterrupt: After SIGINT.
        SystemExit: After SIGTERM, if its handler raises that.
    """
    # Parallel batches share the cores: two threads that meet after every
    # operator cost more than they gain.
    threads = max(1, devices.cores() // batching.num_batch_threads)
    versions = Versions(folder, threads)
    host, port = listening.getsockname()[:2]
    try:
        listening.listen(_BACKLOG)
    except OSError as error:  # Another process was quicker.
        raise _taken(host, port, error) from None
    service = Service(name, versions, Batcher(batching), limits, explain)

    # A thread that reads a long text gives way to the others sooner.
    sys.setswitchinterval(5e-4)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(log_lost)
        following = asyncio.ensure_future(versions.follow())
        name = f"[{host}]" if ":" in host else host
        logger.info("Serving at http://%s:%d", name, port)
        try:
            await make(service, origins, hosts).serve(sockets=[listening])
        finally:
            following.cancel()

    asyncio.run(run())


def log_lost(loop: asyncio.AbstractEventLoop, context: dict) -> None:
    """Log an error that nobody waited for, as asyncio would in all detail."""
    if "exception" in context:
        app.log_mistake("A task ended", context["exception"])


def names_of(host: str, others: Sequence[str] = ()) -> list[str]:
    """List the names by which clients may call the server.

    Where it listens at all addresses, any name will do unless `others` gives
    some. A web page can point its own name at this machine, and a browser that
    follows it sends that name.
    """
    if host in ("", "0.0.0.0", "::") and not others:
        return ["*"]
    return ["localhost", "127.0.0.1", "[::1]", host, f"[{host}]", *others]


def make(
    service: Service,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
) -> uvicorn.Server:
    """Put Uvicorn around the application of `app.build`."""
    return uvicorn.Server(
        uvicorn.Config(
            app.build(service, origins, hosts),
            http=Connection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            log_level="critical",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=service.limits.max_connections,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )
