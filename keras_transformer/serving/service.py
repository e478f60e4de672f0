"""The parts that all interfaces share: the model, its queue, the limits."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import Limits
from keras_transformer.serving.requests import (
    Bodies,
    GoneError,
    RefusalError,
)
from keras_transformer.serving.served_model import Outputs, Row, ServedModel
from keras_transformer.serving.versions import Versions
from keras_transformer.translation.model_card import ModelCard

T = TypeVar("T")


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

    async def unless_gone(self, request: Request, work: Awaitable[T]) -> T:
        """Do a client's work while it waits, within the time limit.

        Args:
            request: Its request, with the body already read.
            work: The work; cancelled when nobody needs it any more.

        Raises:
            RefusalError: If the time is over.
            GoneError: If the client leaves first.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_left(request))
        try:
            done, _ = await asyncio.wait(
                {task, gone},
                timeout=self.limits.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if task in done:
                return task.result()
        finally:
            task.cancel()
            gone.cancel()
        if gone in done:
            raise GoneError
        raise RefusalError(
            504,
            f"No answer within {self.limits.seconds:g} seconds; send less at a "
            "time.",
        )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
