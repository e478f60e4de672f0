"""Texts of any length: into sentences, and together again in order.

A model translates sentences and cuts what is longer than its limit. A document
is therefore split into lines and sentences; a sentence that would still be cut
is halved until it is not. Blank lines, indentation and the space between
sentences stay as they are.
"""

import asyncio
import re
from collections.abc import Sequence

import numpy as np

from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    ServedModel,
)
from keras_transformer.serving.service import Service, card_of
from keras_transformer.translation.sentences import Span, spans_of, together


def halves(text: str, span: Span) -> tuple[Span, Span] | None:
    """Cut a span in two, if it can be, at the space nearest to its middle."""
    if span.end - span.start < 2:
        return None
    middle = (span.start + span.end) // 2
    spaces = [
        found
        for found in re.compile(r"\s+").finditer(text, *span)
        if span.start < found.start() and found.end() < span.end
    ]
    if not spaces:
        return Span(span.start, middle), Span(middle, span.end)
    space = min(spaces, key=lambda found: abs(found.start() - middle))
    return Span(span.start, space.start()), Span(space.end(), span.end)


class Documents:
    """Splits texts for a model.

    Args:
        service: What answers.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def split(
        self, model: ServedModel, texts: Sequence[str]
    ) -> list[list[Span]]:
        """Find spans that the model translates without cutting them.

        Args:
            model: The version.
            texts: Any texts.

        Returns:
            For each text its spans in order.

        Raises:
            RefusalError: If there are too many, or no room now.
        """
        language = card_of(model).source_lang
        spans = await asyncio.to_thread(
            lambda: [spans_of(text, language) for text in texts]
        )
        while True:
            # Where the model cuts; those cannot be halved that are too short.
            cut = await self._truncated(model, texts, spans)
            if not cut:
                return spans
            for number, of_text in enumerate(spans):
                parts: list[Span] = []
                for span in of_text:
                    is_cut = (number, span) in cut
                    two = halves(texts[number], span) if is_cut else None
                    parts += two or [span]
                spans[number] = parts

    async def translate(
        self, model: ServedModel, texts: Sequence[str]
    ) -> list[str]:
        """Translate documents.

        Args:
            model: The version.
            texts: Any texts.

        Returns:
            The translation of each.

        Raises:
            RefusalError: If there are too many, or no room now.
        """
        spans = await self.split(model, texts)
        rows = rows_of(texts, spans)
        outputs = await self.service.run(model, DEFAULT_SIGNATURE, rows)
        parts = iter(decoded(outputs["translation"]))
        return [
            together(text, of_text, [next(parts) for _ in of_text])
            for text, of_text in zip(texts, spans, strict=True)
        ]

    async def _truncated(
        self,
        model: ServedModel,
        texts: Sequence[str],
        spans: Sequence[Sequence[Span]],
    ) -> set[tuple[int, Span]]:
        """Which spans the model would cut, and can be halved.

        A token has at least a byte, so that only the long ones have to be
        tried. (A few characters that Unicode spells out, such as ﷺ, are the
        exception.)
        """
        longest = card_of(model).search.get("max_source_length") or 0
        long = [
            (number, span)
            for number, of_text in enumerate(spans)
            for span in of_text
            if len(texts[number][slice(*span)].encode()) >= longest
            and span.end - span.start > 1
        ]
        rows = [
            (texts[number][slice(*span)].encode(),) for number, span in long
        ]
        outputs = await self.service.run(model, DEFAULT_SIGNATURE, rows)
        return {
            place
            for place, is_cut in zip(long, outputs["truncated"], strict=True)
            if is_cut
        }


def rows_of(
    texts: Sequence[str], spans: Sequence[Sequence[Span]]
) -> list[tuple[bytes]]:
    """The spans of all texts as rows of a signature."""
    return [
        (text[slice(*span)].encode(),)
        for text, of_text in zip(texts, spans, strict=True)
        for span in of_text
    ]


def decoded(texts: np.ndarray) -> list[str]:
    """Texts as a model returns them, `(B,)`."""
    return [text.decode("utf-8", "replace") for text in texts]
