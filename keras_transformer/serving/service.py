"""The parts that all interfaces share: the model, its queue, the limits."""

import dataclasses
from collections.abc import Callable, Sequence

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.requests import Bodies, Limits, RefusalError
from keras_transformer.serving.served_model import Outputs, Row, ServedModel
from keras_transformer.serving.versions import Versions
from keras_transformer.translation.model_card import ModelCard


@dataclasses.dataclass
class Service:
    """A model that is served.

    Attributes:
        name: The model's name for clients.
        versions: The model's versions.
        batcher: The queue before them.
        limits: Limits of a request.
        explain: Turns a text into the HTML document of its explanation by the
            model of a version; None if there is only the export, which cannot
            explain.
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
        """Call a signature as `Batcher.run` does, within the limit of texts.

        Raises:
            RefusalError: If there are too many, or no room now.
        """
        if len(rows) > self.limits.max_texts:
            raise RefusalError(
                400,
                f"Invalid request: request ({len(rows)}) exceeds text limit "
                f"({self.limits.max_texts})",
            )
        return await self.batcher.run(model, signature, rows)


def card_of(model: ServedModel) -> ModelCard:
    """Return the card of a model.

    Raises:
        RefusalError: If the export has no card.
    """
    if model.card is None:
        raise RefusalError(
            501,
            "This export does not say its languages; export it from its run "
            "with this version of keras-transformer. TensorFlow Serving's "
            "interface under /v1 answers all the same.",
        )
    return model.card
