"""A sign of life from long work that says nothing itself."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

logger = logging.getLogger("keras_transformer")


@contextlib.contextmanager
def heartbeat(what: str, seconds: float = 5.0) -> Iterator[None]:
    """Log what goes on, and for how long, until the block ends.

    Args:
        what: Names the work, as the start of a line.
        seconds: From line to line; work that takes less is not mentioned.
    """
    start = time.monotonic()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds):
            logger.info("%s: %.0f s so far.", what, time.monotonic() - start)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
