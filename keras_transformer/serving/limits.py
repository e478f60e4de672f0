"""What a server takes of a request, and of all requests together."""

import dataclasses
import math

from keras_transformer.config import UserError


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

    def check_texts(self, count: int, what: str = "") -> None:
        """Refuse a request of more texts than the limit.

        Args:
            count: How many there are.
            what: What was counted, if not every text: "sentences or more".
        """
        if count > self.max_texts:
            # The verb's flags are made from this class without the extra.
            from keras_transformer.serving.requests import RefusalError

            found = f"{count} {what}" if what else count
            raise RefusalError(
                400,
                f"Invalid request: request ({found}) exceeds text limit "
                f"({self.max_texts})",
            )
