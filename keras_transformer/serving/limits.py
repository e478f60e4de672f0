"""What a server takes, and how it refuses what is beyond."""

import dataclasses

from keras_transformer.settings import check_settings, setting

GONE = 499  # For the metrics: the client has left.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds; a server refuses what is beyond."""

    max_texts: int = setting(2_048, "most texts or sentences in a request")
    max_body_bytes: int = setting(1 << 20, "most bytes in a request")
    timeout: float = setting(
        120.0,
        "time from the last byte of a request until its answer",
        within="(0, inf)",
        metavar="SECONDS",
    )
    body_seconds: float = setting(
        30.0,
        "time that a client has to send a body",
        within="(0, inf)",
        flag=False,
    )
    max_bytes_held: int = setting(
        32 << 20,
        "most bytes of all bodies, from their arrival until they are answered; "
        "short ones are counted, but not refused",
        flag=False,
    )
    max_connections: int = setting(1_000, "most connected clients", flag=False)

    def __post_init__(self) -> None:
        check_settings(self)


LIMITS = dataclasses.fields(Limits)


@dataclasses.dataclass(frozen=True)
class Batching:
    """How texts go through the model together, in TensorFlow Serving's names.

    `exporting/batching_file.py` says what each does.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 5_000
    num_batch_threads: int = 2
    max_enqueued_batches: int = 16


class RefusalError(Exception):
    """A request is refused, with the reason in one sentence.

    With `retry` the same request may succeed in a moment; with `close` the rest
    of its body is not read.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        retry: bool = False,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status_code, self.detail = status, message
        self.headers = {"Retry-After": "1"} if retry else {}  # Seconds.
        if close:
            self.headers["Connection"] = "close"
