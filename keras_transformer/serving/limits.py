"""What a server takes, and how it refuses what is beyond."""

import dataclasses
import math

from keras_transformer.config import UserError

GONE = 499  # For the metrics: the client has left.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds, each above 0; a server refuses what is beyond.

    Attributes:
        max_texts: Texts of a request; a document counts its sentences.
        max_body_bytes: Bytes of a body, compressed or not.
        seconds: Time from the last byte of a request until the answer.
        body_seconds: Time that a client has to send a body.
        max_bytes_held: Bytes of all bodies, from their arrival until they are
            answered. Short ones are counted, but not refused.
        max_connections: Connected clients.
    """

    max_texts: int = 2_048
    max_body_bytes: int = 1 << 20
    seconds: float = 120.0
    body_seconds: float = 30.0
    max_bytes_held: int = 32 << 20
    max_connections: int = 1_000

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(
                    f"Expected a limit {name} above 0, received {value}."
                )


class RefusalError(Exception):
    """A request is refused, with the reason in one sentence.

    Args:
        message: The sentence.
        status: HTTP status code.
        retry: Whether the same request may succeed in a moment.
        close: Whether the rest of its body is not read.
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
        self.headers: dict[str, str] = {}
        if retry:
            self.headers["Retry-After"] = "1"  # Seconds.
        if close:
            self.headers["Connection"] = "close"
