"""Translates texts of any length by their sentences.

A model translates sentences and cuts those that are longer than its limit. A
document is therefore split into lines and sentences, and a sentence that would
still be cut is halved until it fits. Blank lines, indentation and the space
between sentences stay as they are.
"""

import asyncio
import math
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

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

T = TypeVar("T")

# This many characters are read within two milliseconds, whichever they are.
_SHORT = 2_048


def halves(text: str, span: Span) -> tuple[Span, Span] | None:
    """Cut a span in two at the space nearest to its middle, if it has one."""
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
    """A part of a text that the model translated by itself."""

    span: Span
    hypotheses: list[tuple[str, float]]  # Texts and scores, best first.

    @property
    def best(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0][0]


class Documents:
    """Translates texts of any length, part by part."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # A thread of its own, so that long texts hold up nothing else.
        self._reader = ThreadPoolExecutor(1, "read")

    async def read(self, texts: Sequence[str], work: Callable[[], T]) -> T:
        """Do work on texts, without making short ones wait for long ones."""
        if sum(map(len, texts)) <= _SHORT:
            return work()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, work)

    async def search(
        self, model: ServedModel, texts: Sequence[str], count: int = 1
    ) -> list[list[Translated]]:
        """Translate sentence by sentence, halving those that were cut.

        Args:
            model: The version, in use until this returns.
            texts: Any texts.
            count: The most hypotheses of a part, no two of them alike.

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
            answers = await self._answers(model, rows, count)
            again = []
            for (number, span), (hypotheses, is_cut) in zip(
                waiting, answers, strict=True
            ):
                two = halves(texts[number], span) if is_cut else None
                if two:
                    again += [(number, half) for half in two]
                else:
                    found[number].append(Translated(span, hypotheses))
            waiting = again
        return [sorted(parts) for parts in found]

    async def translate(
        self, model: ServedModel, texts: Sequence[str], count: int = 1
    ) -> list[list[str]]:
        """Translate documents, with arguments and errors as in `search`.

        Returns:
            For each text its translations, best first. The n-th joins the n-th
            hypothesis of each part, or its last.
        """
        found = []
        of_texts = await self.search(model, texts, count)
        for text, parts in zip(texts, of_texts, strict=True):
            longest = max((len(part.hypotheses) for part in parts), default=1)
            whole = [
                together(
                    text,
                    [part.span for part in parts],
                    [part.hypotheses[:rank][-1][0] for part in parts],
                )
                for rank in range(1, longest + 1)
            ]
            found.append(list(dict.fromkeys(whole)))
        return found

    async def _answers(
        self, model: ServedModel, rows: Sequence[tuple[bytes]], count: int
    ) -> list[tuple[list[tuple[str, float]], bool]]:
        """Find each row's hypotheses and whether the model cut it."""
        if count == 1 or "n_best" not in model.signatures:
            outputs = await self.service.run(model, DEFAULT_SIGNATURE, rows)
            texts = outputs["translation"][:, None]
            scores = outputs["score"][:, None]
        else:
            outputs = await self.service.run(model, "n_best", rows)
            texts = outputs["translations"][:, :count]
            scores = outputs["scores"][:, :count]
        return [
            (
                without_repeats(
                    (text.decode("utf-8", "replace"), float(score))
                    for rank, (text, score) in enumerate(
                        zip(of_texts, of_scores, strict=True)
                    )
                    # Others may be missing.
                    if rank == 0 or math.isfinite(score)
                ),
                bool(is_cut),
            )
            for of_texts, of_scores, is_cut in zip(
                texts, scores, outputs["truncated"], strict=True
            )
        ]

    async def _sentences(
        self, model: ServedModel, texts: Sequence[str]
    ) -> list[list[Span]]:
        """Split texts into sentences while the client waits."""
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
                        return []  # The client has left.
                    if count > most:
                        raise RefusalError(
                            400,
                            f"Invalid request: request ({count} sentences or "
                            f"more) exceeds text limit ({most})",
                        )
                    found[-1].append(span)
            return found

        try:
            return await self.read(texts, split)
        finally:
            is_over.set()
