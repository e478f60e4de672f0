"""Logs a sign of life during long work that logs nothing itself."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

logger = logging.getLogger("keras_transformer")


@contextlib.contextmanager
def heartbeat(what: str, seconds: float = 5.0) -> Iterator[None]:
    """Log the work and its duration at intervals, until the block ends.

    Args:
        what: Names the work, at the start of a line.
        seconds: Seconds between lines; shorter work is not logged.
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
