"""Translates texts of any length by their sentences.

A model translates sentences and cuts those that are longer than its limit. A
document is therefore split into lines and sentences, and a sentence that would
still be cut is halved until it fits. Blank lines, indentation and the space
between sentences stay as they are.
"""

import math
import re
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    Outputs,
    Row,
    ServedModel,
)
from keras_transformer.serving.service import Job, card_of
from keras_transformer.translation.sentences import (
    Span,
    iterate_spans,
    tag_of,
    together,
)

Hypotheses = list[tuple[str, float]]  # Texts and scores, best first.
Place = tuple[int, Span]  # A part of a text, with the text's number.


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
    hypotheses: Hypotheses

    @property
    def best(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0][0]


async def search(
    job: Job, model: ServedModel, texts: Sequence[str], count: int = 1
) -> list[list[Translated]]:
    """Translate sentence by sentence, halving those that were cut.

    Args:
        job: The request.
        model: The version, in use until this returns.
        texts: Any texts.
        count: The most hypotheses of a part, no two of them alike.

    Returns:
        For each text its parts in order.

    Raises:
        RefusalError: If there are too many, or no room now.
    """
    found: list[list[Translated]] = [[] for _ in texts]
    tags = [tag_of(text) for text in texts]
    signature = DEFAULT_SIGNATURE
    if count > 1 and "n_best" in model.signatures:
        signature = "n_best"

    def rows() -> list[Row]:
        return [
            ((tags[number] + texts[number][slice(*span)]).encode(),)
            for number, span in waiting
        ]

    def sort_out() -> Generator[None, None, list[Place]]:
        again: list[Place] = []
        answers = _answers(outputs, count)
        for (number, span), (hypotheses, is_cut) in zip(
            waiting, answers, strict=True
        ):
            two = halves(texts[number], span) if is_cut else None
            if two:
                again += [(number, half) for half in two]
            else:
                found[number].append(Translated(span, hypotheses))
            yield
        return again

    waiting = await job.finish(_places(job, model, texts))
    while waiting:
        outputs = await job.service.run(model, signature, await job.turn(rows))
        waiting = await job.finish(sort_out())
    return [sorted(parts) for parts in found]


async def translate(
    job: Job, model: ServedModel, texts: Sequence[str], count: int = 1
) -> list[list[str]]:
    """Translate documents, with arguments and errors as in `search`.

    Returns:
        For each text its translations, best first. The n-th joins the n-th
        hypothesis of each part, or its last.
    """
    of_texts = await search(job, model, texts, count)

    def joined() -> Generator[None, None, list[list[str]]]:
        found = []
        for text, parts in zip(texts, of_texts, strict=True):
            longest = max((len(part.hypotheses) for part in parts), default=1)
            whole = [
                together(
                    text,
                    [part.span for part in parts],
                    [part.hypotheses[:rank][-1][0] for part in parts],
                    card_of(model).target_lang,
                )
                for rank in range(1, longest + 1)
            ]
            found.append(list(dict.fromkeys(whole)))
            yield
        return found

    return await job.finish(joined())


def _answers(outputs: Outputs, count: int) -> Iterator[tuple[Hypotheses, bool]]:
    """Find each row's hypotheses and whether the model cut it."""
    if "translations" in outputs:
        texts = outputs["translations"][:, :count]
        scores = outputs["scores"][:, :count]
    else:
        texts = outputs["translation"][:, None]
        scores = outputs["score"][:, None]
    for of_texts, of_scores, is_cut in zip(
        texts, scores, outputs["truncated"], strict=True
    ):
        # Texts of other bytes may be equal once they are decoded.
        hypotheses: dict[str, float] = {}
        for rank, (text, score) in enumerate(
            zip(of_texts, of_scores, strict=True)
        ):
            if rank == 0 or math.isfinite(score):  # Others may be missing.
                decoded = text.decode("utf-8", "replace")
                hypotheses.setdefault(decoded, float(score))
        yield [*hypotheses.items()], bool(is_cut)


def _places(
    job: Job, model: ServedModel, texts: Sequence[str]
) -> Generator[None, None, list[Place]]:
    """Split texts into sentences."""
    language = card_of(model).source_lang
    found: list[Place] = []
    for number, text in enumerate(texts):
        for span in iterate_spans(text, language):
            found.append((number, span))
            job.service.limits.check_texts(len(found), "sentences or more")
            yield
    return found
