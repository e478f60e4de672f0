"""Texts of any length: into sentences, and together again in order.

A model translates sentences and cuts what is longer than its limit. A document
is therefore split into lines and sentences; a sentence that would still be cut
is halved until it is not. Blank lines, indentation and the space between
sentences stay as they are.
"""

import asyncio
import math
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from keras_transformer.serving.requests import RefusalError
from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    ServedModel,
)
from keras_transformer.serving.service import Service, card_of
from keras_transformer.translation.sentences import (
    Span,
    iterate_spans,
    together,
    without_repeats,
)


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


class Translated(NamedTuple):
    """A part of a text that went through the model by itself."""

    span: Span
    text: str
    score: float


class Documents:
    """Splits texts for a model, and translates them part by part.

    Args:
        service: What answers.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        # Of its own: what is split holds up nothing else.
        self._splitter = ThreadPoolExecutor(1, "split")

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
        spans = await self._sentences(model, texts)
        # Those cannot be halved that are too short.
        while cut := await self._truncated(model, texts, spans):
            for number, of_text in enumerate(spans):
                parts: list[Span] = []
                for span in of_text:
                    is_cut = (number, span) in cut
                    two = halves(texts[number], span) if is_cut else None
                    parts += two or [span]
                spans[number] = parts
        return spans

    async def search(
        self, model: ServedModel, texts: Sequence[str]
    ) -> list[list[Translated]]:
        """Translate sentence by sentence, and again in halves what was cut.

        Args:
            model: The version.
            texts: Any texts.

        Returns:
            For each text its parts in order.

        Raises:
            RefusalError: If there are too many, or no room now.
        """
        found: list[list[Translated]] = [[] for _ in texts]
        spans = await self._sentences(model, texts)
        waiting = [
            (number, span) for number, of in enumerate(spans) for span in of
        ]
        while waiting:
            rows = [
                (texts[number][slice(*span)].encode(),)
                for number, span in waiting
            ]
            outputs = await self.service.run(model, DEFAULT_SIGNATURE, rows)
            again = []
            for (number, span), text, score, is_cut in zip(
                waiting,
                decoded(outputs["translation"]),
                outputs["score"],
                outputs["truncated"],
                strict=True,
            ):
                two = halves(texts[number], span) if is_cut else None
                if two:
                    again += [(number, half) for half in two]
                else:
                    part = Translated(span, text, float(score))
                    found[number].append(part)
            waiting = again
        return [sorted(parts) for parts in found]

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
        found = await self.search(model, texts)
        return [
            together(text, [x.span for x in parts], [x.text for x in parts])
            for text, parts in zip(texts, found, strict=True)
        ]

    async def n_best(
        self, model: ServedModel, rows: Sequence[tuple[bytes]], count: int
    ) -> list[list[tuple[str, float]]]:
        """Find the best translations of each row, no two of them alike.

        Args:
            model: The version, with a signature `n_best`.
            rows: Of `rows_of`.
            count: Hypotheses of a row, if the export finds so many.

        Returns:
            For each row texts and scores, best first.

        Raises:
            RefusalError: If there is no room now.
        """
        outputs = await self.service.run(model, "n_best", rows)
        return [
            [
                (text, float(score))
                for text, score in without_repeats(
                    zip(decoded(of_row), of_scores, strict=True)
                )
                if math.isfinite(score)  # Or there are fewer.
            ]
            for of_row, of_scores in zip(
                outputs["translations"][:, :count],
                outputs["scores"][:, :count],
                strict=True,
            )
        ]

    async def _sentences(
        self, model: ServedModel, texts: Sequence[str]
    ) -> list[list[Span]]:
        """The sentences of texts, while somebody waits for them."""
        language = card_of(model).source_lang
        most = self.service.limits.max_texts
        is_over = threading.Event()

        def split() -> list[list[Span]]:
            found: list[list[Span]] = []
            count = 0
            for text in texts:
                found.append([])
                for span in iterate_spans(text, language):
                    count += 1
                    if is_over.is_set():
                        return []  # Nobody waits for it.
                    if count > most:
                        raise RefusalError(
                            400,
                            f"Invalid request: request ({count} sentences or "
                            f"more) exceeds text limit ({most})",
                        )
                    found[-1].append(span)
            return found

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._splitter, split)
        finally:
            is_over.set()

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
        if not long:
            return set()
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
