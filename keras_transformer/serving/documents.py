"""Translates texts of any length, for all interfaces.

A model translates sentences and cuts those that are longer than its limit. A
document is therefore split into lines and sentences, and a sentence that would
still be cut is halved until it fits. Blank lines, indentation and the space
between sentences stay as they are, and the tags of HTML.

Words are linked by the signature `attention`, which knows pieces, not words.

Axes: S source pieces, T target pieces.
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.data.words import words_of
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.markup import Page, Part
from keras_transformer.serving.service import Job, Work
from keras_transformer.serving.versions import (
    DEFAULT_SIGNATURE,
    Outputs,
    Row,
    check_signature,
    languages_of,
)
from keras_transformer.translation.alignment import (
    align_words,
    words_of_pieces,
)
from keras_transformer.translation.sentences import (
    Span,
    iterate_spans,
    tag_of,
    together,
)

# The most characters of HTML in a request: reading and placing so many can take
# a second, if every other one is a tag.
MAX_HTML = 1 << 17
_SPACE = "▁".encode()
_END = b"</s>"
_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")

Links = list[tuple[int, int]]  # Source words with target words, from 0.


class Sentence(NamedTuple):
    """A part of a text that the model translated by itself.

    Attributes:
        span: Its place.
        source: The part.
        hypotheses: Texts and scores, best first, no two texts alike.
    """

    span: Span
    source: str
    hypotheses: list[tuple[str, float]]

    @property
    def best(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0][0]


async def search(
    job: Job, texts: Sequence[str], count: int = 1
) -> list[list[Sentence]]:
    """Translate sentence by sentence, halving those that were cut.

    Returns:
        For each text its sentences in order, each with at most `count`
        hypotheses.

    Raises:
        RefusalError: If there are too many, or no room now.
    """
    batcher, model = job.service.batcher, job.model
    found: list[list[Sentence]] = [[] for _ in texts]
    tags = [tag_of(text) for text in texts]
    has_more = count > 1 and "n_best" in model.signatures
    signature = "n_best" if has_more else DEFAULT_SIGNATURE
    language = languages_of(model)[0]

    def split() -> Work[list[tuple[int, Span]]]:
        places = []
        for number, text in enumerate(texts):
            for span in iterate_spans(text, language):
                places.append((number, span))
                job.service.limits.check_texts(len(places), "sentences or more")
                yield
        return places

    def rows() -> list[Row]:
        return [
            ((tags[number] + texts[number][slice(*span)]).encode(),)
            for number, span in waiting
        ]

    def sort_out() -> Work[list[tuple[int, Span]]]:
        again = []
        answers = _answers(outputs, count)
        for (number, span), hypotheses, is_cut in zip(
            waiting, answers, outputs["truncated"], strict=True
        ):
            text = texts[number]
            if is_cut and (two := halves(text, span)):
                again += [(number, half) for half in two]
            else:
                source = text[slice(*span)]
                found[number].append(Sentence(span, source, hypotheses))
            yield
        return again

    waiting = await job.finish(split())
    while waiting:
        check_signature(model, signature)
        outputs = await batcher.run(model, signature, await job.turn(rows))
        waiting = await job.finish(sort_out())
    return [sorted(sentences) for sentences in found]


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


def _answers(outputs: Outputs, count: int) -> Iterator[list[tuple[str, float]]]:
    """Find the hypotheses of each row."""
    if "translations" in outputs:
        texts = outputs["translations"][:, :count]
        scores = outputs["scores"][:, :count]
    else:
        texts = outputs["translation"][:, None]
        scores = outputs["score"][:, None]
    for pairs in map(zip, texts, scores):
        # Texts of other bytes may be equal once they are decoded.
        hypotheses: dict[str, float] = {}
        for rank, (text, score) in enumerate(pairs):
            if rank == 0 or math.isfinite(score):  # Others may be missing.
                decoded = text.decode("utf-8", "replace")
                hypotheses.setdefault(decoded, float(score))
        yield [*hypotheses.items()]


async def translate(
    job: Job, texts: Sequence[str], count: int = 1
) -> list[list[str]]:
    """Translate documents, with errors as in `search`.

    Returns:
        For each text its translations, best first. The n-th joins the n-th
        hypothesis of each sentence, or its last.
    """
    of_texts = await search(job, texts, count)

    def joined() -> Work[list[list[str]]]:
        found = []
        for text, parts in zip(texts, of_texts, strict=True):
            most = max((len(part.hypotheses) for part in parts), default=1)
            ranks = range(1, most + 1)
            whole = [whole_of(job, text, parts, rank) for rank in ranks]
            found.append(list(dict.fromkeys(whole)))
            yield
        return found

    return await job.finish(joined())


def whole_of(
    job: Job, text: str, parts: Sequence[Sentence], rank: int = 1
) -> str:
    """Join a hypothesis of each sentence, the best ones by default."""
    return together(
        text,
        [part.span for part in parts],
        [part.hypotheses[:rank][-1][0] for part in parts],
        languages_of(job.model)[1],
    )


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate HTML, whole pages or parts, as `translate` does; tags stay."""
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            400,
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML",
        )

    def read() -> Work[list[Page]]:
        pages = []
        for text in texts:
            pages.append(Page(text))
            yield
        return pages

    pages = await job.finish(read())
    segments = [segment for page in pages for segment in page.segments]
    found = await search(job, [segment.text for segment in segments])
    with_elements = [
        part
        for segment, parts in zip(segments, found, strict=True)
        for part in parts
        if segment.has_elements
    ]
    links = iter(await linked_words(job, with_elements))

    def put_back() -> Work[list[list[str]]]:
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
                languages_of(job.model),
            )
            yield
        return [[page.html()] for page in pages]

    return await job.finish(put_back())


async def linked_words(
    job: Job, sentences: Sequence[Sentence]
) -> list[Links | None]:
    """Find the words that belong together, if the model can tell."""
    batcher, model = job.service.batcher, job.model
    if "attention" not in model.signatures:
        return [None] * len(sentences)
    found: list[Links | None] = []
    # A document has many matrices, so take those of one batch at a time.
    most = batcher.batching.max_batch_size

    def link() -> Work[None]:
        languages = languages_of(model)
        for sentence, source, target, matrix in zip(
            part,
            *(outputs["source_pieces"], outputs["target_pieces"]),
            outputs["attention"],
            strict=True,
        ):
            texts = sentence.source, sentence.best
            found.append(word_links(texts, source, target, matrix, languages))
            yield

    for start in range(0, len(sentences), most):
        part = sentences[start : start + most]
        rows = [(x.source.encode(), x.best.encode()) for x in part]
        outputs = await batcher.run(model, "attention", rows)
        await job.finish(link())
    return found


def word_links(
    pair: tuple[str, str],
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
    languages: tuple[str, str],
) -> Links | None:
    """Give each word of a translation the source word it looked at most.

    `words_of` finds the words of the source and its translation, by the codes
    of both languages. Attention is float32 `(T, S)`; pieces may be filled up
    with "".

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


def texts_of_words(text: str, language: str) -> list[str]:
    """List the words of a text."""
    return [text[slice(*place)] for place in words_of(text, language)]


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
