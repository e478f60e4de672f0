"""How much the server takes on: of a request, and at a time."""

import dataclasses
import math

from keras_transformer.config import UserError


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may ask for, and all together.

    Attributes:
        max_texts: Texts of a request; a document's sentences are counted.
        max_body_bytes: Bytes of its body.
        seconds: Time from its last byte until the answer.
        body_seconds: Time that a client has for a body.
        max_bytes_held: Bytes of all bodies that have not arrived whole.
        max_connections: Clients that are connected.
    """

    max_texts: int = 2_048
    max_body_bytes: int = 1 << 20
    seconds: float = 120.0
    body_seconds: float = 30.0
    max_bytes_held: int = 64 << 20
    max_connections: int = 1_000

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(
                    f"Expected a limit {name} above 0, received {value}."
                )
