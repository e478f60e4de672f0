"""Shows the package's log where nobody has configured logging."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def log_shown() -> Iterator[None]:
    """Show the log unless the caller has configured logging."""
    package = logging.getLogger("keras_transformer")
    level, handler = package.level, None
    if not package.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
        )
        package.addHandler(handler)
    if level == logging.NOTSET and not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.setLevel(level)
        if handler:
            package.removeHandler(handler)
