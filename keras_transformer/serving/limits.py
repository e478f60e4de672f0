"""How much the server takes on: of a request, and at a time."""

import dataclasses
import math
import os
import pathlib
import re

from keras_transformer.config import UserError

BATCHING_FILE = "batching_parameters.txt"


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    Attributes:
        max_texts: Texts of a request; a document's sentences are counted.
        max_body_bytes: Bytes of its body.
        seconds: Time from its last byte until the answer.
        body_seconds: Time that a client has for each part of a body.
    """

    max_texts: int = 2_048
    max_body_bytes: int = 1 << 20
    seconds: float = 120.0
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(
                    f"Expected a limit {name} above 0, received {value}."
                )


@dataclasses.dataclass(frozen=True)
class Batching:
    """TensorFlow Serving's batching parameters, as far as they matter here.

    Attributes:
        max_batch_size: Texts translated together.
        batch_timeout_micros: How long a text waits for company.
        num_batch_threads: Batches translated at the same time.
        max_enqueued_batches: Batches that may wait.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 5_000
    num_batch_threads: int = 2
    max_enqueued_batches: int = 16

    @property
    def capacity(self) -> int:
        """Texts that may be waiting or in work at a time."""
        batches = self.max_enqueued_batches + self.num_batch_threads
        return batches * self.max_batch_size

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Batching":
        """Read the text form that TensorFlow Serving reads.

        Args:
            path: The file. What it does not say is as in `export`'s; what
                else it says is TensorFlow Serving's alone.

        Raises:
            UserError: If it cannot be read, or says a number below 1 (or a
                time below 0).
        """
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"Expected the batching parameters in {path}, cannot read "
                f"them ({type(error).__name__}); name another file."
            ) from None
        text = re.sub("#.*", "", text)
        found = re.findall(r"\b(\w+)\s*:?\s*{\s*value\s*:\s*(-?\d+)", text)
        known = {field.name for field in dataclasses.fields(cls)}
        values = {name: int(value) for name, value in found if name in known}
        for name, value in values.items():
            if value < (name != "batch_timeout_micros"):
                raise UserError(
                    f"Expected {name} of at least 1 in {path}, found {value}."
                )
        return cls(**values)
