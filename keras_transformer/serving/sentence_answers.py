"""Answers sentence by sentence: hypotheses, linked words, HTML.

Words are linked by the signature `attention`, which knows pieces, not words.

Axes: S source pieces, T target pieces.
"""

import itertools
import re
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from keras_transformer.data.words import words_of
from keras_transformer.serving import documents
from keras_transformer.serving.markup import Page, Part
from keras_transformer.serving.requests import RefusalError
from keras_transformer.serving.served_model import Outputs, ServedModel
from keras_transformer.serving.service import Job, card_of
from keras_transformer.translation.alignment import (
    align_words,
    words_of_pieces,
)
from keras_transformer.translation.sentences import together

_SPACE = "▁".encode()
_END = b"</s>"
_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")
# The most characters of HTML in a request: reading and placing so many can take
# a second, if every other one is a tag.
MAX_HTML = 1 << 17

Pairs = Sequence[tuple[str, str]]  # Sentences with their translations.
Links = list[tuple[int, int]]  # Source words with target words, from 0.


async def translate_text(
    job: Job,
    model: ServedModel,
    text: str,
    n_best: int | None,
    links: bool,
) -> dict[str, Any]:
    """Translate a document for the page.

    Args:
        job: The request.
        model: The version, in use until this returns.
        text: Any text.
        n_best: The most hypotheses of a sentence; None for the best.
        links: Whether to find which words belong together.

    Returns:
        The answer of `/api/translate`.

    Raises:
        RefusalError: As in `documents.search`.
    """
    (parts,) = await documents.search(job, model, [text], n_best or 1)
    sources = [text[slice(*part.span)] for part in parts]
    best = [part.best for part in parts]
    words: list[Links | None] = [None] * len(parts)
    languages = _languages(model)
    if links:
        pairs = list(zip(sources, best, strict=True))
        words = await _linked_words(job, model, pairs)
    return {
        "sentences": [
            {
                "source": source,
                "start": part.span.start,
                "end": part.span.end,
                "hypotheses": [
                    {"text": text, "score": score}
                    for text, score in part.hypotheses
                ],
                "words": of_part,
                "source_words": _texts(source, languages[0]),
                "target_words": _texts(part.best, languages[1]),
            }
            for source, part, of_part in zip(sources, parts, words, strict=True)
        ],
        "translation": together(
            text,
            [part.span for part in parts],
            best,
            card_of(model).target_lang,
        ),
    }


async def translate_html(
    job: Job, model: ServedModel, texts: Sequence[str]
) -> list[list[str]]:
    """Translate HTML: the sentences change, the tags stay.

    Args:
        job: The request.
        model: The version, in use until this returns.
        texts: HTML, whole pages or parts.

    Returns:
        For each text a list of its one translation.

    Raises:
        RefusalError: If there is too much, or no room now.
    """
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            400,
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML",
        )

    def read() -> Generator[None, None, list[Page]]:
        pages = []
        for text in texts:
            pages.append(Page(text))
            yield
        return pages

    pages = await job.finish(read())
    segments = [segment for page in pages for segment in page.segments]
    found = await documents.search(job, model, [x.text for x in segments])
    pairs = [
        (segment.text[slice(*part.span)], part.best)
        for segment, parts in zip(segments, found, strict=True)
        for part in parts
        if segment.has_elements
    ]
    links = iter(await _linked_words(job, model, pairs))

    languages = _languages(model)

    def put_back() -> Generator[None, None, list[list[str]]]:
        for segment, parts in zip(segments, found, strict=True):
            segment.put(
                [
                    Part(
                        part.span,
                        part.best,
                        next(links) if segment.has_elements else None,
                    )
                    for part in parts
                ],
                languages,
            )
            yield
        return [[page.html()] for page in pages]

    return await job.finish(put_back())


def _languages(model: ServedModel) -> tuple[str, str]:
    card = card_of(model)
    return card.source_lang, card.target_lang


def _texts(text: str, language: str) -> list[str]:
    """List the words of a text."""
    return [text[slice(*place)] for place in words_of(text, language)]


async def _linked_words(
    job: Job, model: ServedModel, pairs: Pairs
) -> list[Links | None]:
    """Find the words that belong together, if the model can tell."""
    if "attention" not in model.signatures:
        return [None] * len(pairs)
    found: list[Links | None] = []
    # A document has many matrices, so take those of one batch at a time.
    most = job.service.batcher.batching.max_batch_size
    for start in range(0, len(pairs), most):
        part = pairs[start : start + most]
        rows = [(one.encode(), other.encode()) for one, other in part]
        outputs = await job.service.run(model, "attention", rows)
        found += await job.finish(_links(part, outputs, _languages(model)))
    return found


def _links(
    pairs: Pairs, outputs: Outputs, languages: tuple[str, str]
) -> Generator[None, None, list[Links | None]]:
    names = ("source_pieces", "target_pieces", "attention")
    matrices = (outputs[name] for name in names)
    found = []
    for pair, one, other, matrix in zip(pairs, *matrices, strict=True):
        found.append(word_links(pair, one, other, matrix, languages))
        yield
    return found


def word_links(
    pair: tuple[str, str],
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
    languages: tuple[str, str],
) -> Links | None:
    """Give each word of a translation the source word it looked at most.

    `words_of` finds the words.

    Args:
        pair: The sentence and its translation.
        source_pieces: S pieces, filled up with "".
        target_pieces: T pieces, filled up with "".
        attention: float32 `(T, S)`.
        languages: The codes of both.

    Returns:
        Pairs (source word, target word) counted from 0, in the order of the
        target; None if the pieces have other words than the texts, as when
        the source was cut.
    """
    sides = []
    for text, pieces, language in zip(
        pair,
        (source_pieces, target_pieces),
        languages,
        strict=True,
    ):
        words = _words(pieces, language)
        found = {word for of_piece in words for word in of_piece}
        if len(words_of(text, language)) != len(found):
            return None
        sides.append(words)
    return align_words(attention, *sides)


def _words(pieces: Sequence[bytes], language: str) -> list[range]:
    """Find the words of each piece, without the end token."""
    parts = [
        bytes([int(piece[3:5], 16)])
        if _BYTE.fullmatch(piece)
        else piece.replace(_SPACE, b" ")
        for piece in itertools.takewhile(lambda x: x and x != _END, pieces)
    ]
    ends = list(itertools.accumulate(map(len, parts)))
    starts = [0, *ends][: len(ends)]
    return words_of_pieces(b"".join(parts), starts, ends, language)
