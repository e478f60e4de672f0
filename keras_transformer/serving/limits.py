"""What a server takes, and how it refuses what is beyond."""

import dataclasses
from typing import Any

from keras_transformer.settings import Checked, setting, settings_of


@dataclasses.dataclass(frozen=True)
class Limits(Checked):
    """Bounds; a server refuses what is beyond."""

    max_texts: int = setting(2_048, "most texts or sentences in a request")
    max_body_bytes: int = setting(1 << 20, "most bytes in a request")
    timeout: float = setting(
        120.0,
        "time from the last byte of a request until its answer",
        within="(0, inf)",
        metavar="SECONDS",
    )
    # Without flags: the time to send a body; the bytes of all bodies without an
    # answer yet, though short ones are never refused; how many clients connect.
    body_seconds: float = 30.0
    max_bytes_held: int = 32 << 20
    max_connections: int = 1_000


LIMITS = list(settings_of(Limits).values())


@dataclasses.dataclass(frozen=True)
class Batching:
    """How texts are batched; `exporting/serving_kit.py` says what each does."""

    max_batch_size: int = 32
    batch_timeout_micros: int = 5_000
    num_batch_threads: int = 2
    max_enqueued_batches: int = 16


AGAIN = {"Retry-After": "1"}  # In a second, the same may succeed.
CLOSE = {"Connection": "close"}  # The rest of the body is not read.


class RefusalError(Exception):
    """A request is refused, with the reason in one sentence."""

    def __init__(
        self, message: str, status: int = 400, headers: Any = None
    ) -> None:
        super().__init__(message)
        self.detail, self.status_code, self.headers = message, status, headers
