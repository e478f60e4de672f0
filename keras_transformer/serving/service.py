"""What all interfaces share: the model, the queue before it, the limits."""

import dataclasses
from collections.abc import Callable, Sequence

from keras_transformer.serving.batcher import (
    Batcher,
    BusyError,
    Outputs,
    Row,
)
from keras_transformer.serving.limits import Limits
from keras_transformer.serving.requests import Bodies, RefusalError
from keras_transformer.serving.served_model import ServedModel
from keras_transformer.serving.versions import Versions
from keras_transformer.translation.model_card import ModelCard


@dataclasses.dataclass
class Service:
    """A model that is served.

    Attributes:
        name: What clients call the model.
        versions: The versions of it.
        batcher: The queue before them.
        limits: What one request may ask for.
        explain: Turns a text into the HTML document of its explanation by the
            model of a version; None where there is only the export, which
            cannot.
        bodies: Reads the bodies of requests.
    """

    name: str
    versions: Versions
    batcher: Batcher
    limits: Limits
    explain: Callable[[str, int], str] | None = None

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.limits)

    async def run(
        self, model: ServedModel, signature: str, rows: Sequence[Row]
    ) -> Outputs:
        """Call a signature, in company.

        Args:
            model: The version, in use until this returns.
            signature: Its signature.
            rows: For each of B texts the inputs, as in `ServedModel.run`.

        Returns:
            Its outputs `(B, ...)`.

        Raises:
            RefusalError: If there are too many, or no room now.
        """
        if len(rows) > self.limits.max_texts:
            raise RefusalError(
                400,
                f"Invalid request: request ({len(rows)}) exceeds text limit "
                f"({self.limits.max_texts})",
            )
        try:
            return await self.batcher.run(model, signature, rows)
        except BusyError:
            raise RefusalError(
                503,
                "The batch scheduling queue to which this task was submitted "
                "is full; try again in a moment.",
                retry=True,
            ) from None


def card_of(model: ServedModel) -> ModelCard:
    """Return the card of a model.

    Raises:
        RefusalError: If it says nothing.
    """
    if model.card is None:
        raise RefusalError(
            501,
            "This export does not say its languages; export it from its run "
            "with this version of keras-transformer. TensorFlow Serving's "
            "interface under /v1 answers all the same.",
        )
    return model.card
