"""Answers sentence by sentence: hypotheses, linked words, HTML.

Words are linked by the signature `attention`, which knows pieces, not words.

Axes: S source pieces, T target pieces.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from keras_transformer.serving import documents
from keras_transformer.serving.markup import Page, Part
from keras_transformer.serving.requests import RefusalError
from keras_transformer.serving.served_model import Outputs, ServedModel
from keras_transformer.serving.service import Job, card_of
from keras_transformer.translation.alignment import align_words
from keras_transformer.translation.sentences import together

_SPACE = "▁".encode()
_END = b"</s>"
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
                card_of(model).target_lang,
            )
            yield
        return [[page.html()] for page in pages]

    return await job.finish(put_back())


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
        found += await job.finish(_links(part, outputs))
    return found


def _links(
    pairs: Pairs, outputs: Outputs
) -> Generator[None, None, list[Links | None]]:
    names = ("source_pieces", "target_pieces", "attention")
    matrices = (outputs[name] for name in names)
    found = []
    for pair, *of_pair in zip(pairs, *matrices, strict=True):
        found.append(word_links(*pair, *of_pair))
        yield
    return found


def word_links(
    source: str,
    translation: str,
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
) -> Links | None:
    """Give each word of a translation the source word it looked at most.

    `str.split` finds the words.

    Args:
        source: The sentence.
        translation: Its translation.
        source_pieces: S pieces, filled up with "".
        target_pieces: T pieces, filled up with "".
        attention: float32 `(T, S)`.

    Returns:
        Pairs (source word, target word) counted from 0, in the order of the
        target; None if the pieces have other words than the texts, as when
        the source was cut.
    """
    source_words = _words(source_pieces)
    target_words = _words(target_pieces)
    if len(source.split()) != len(set(source_words)):
        return None
    if len(translation.split()) != len(set(target_words)):
        return None
    return align_words(attention, source_words, target_words)


def _words(pieces: Sequence[bytes]) -> list[int]:
    """Number the word of each piece, without the end token."""
    words: list[int] = []
    for piece in pieces:
        if not piece or piece == _END:
            break
        begins = piece.startswith(_SPACE) or not words
        words.append((words[-1] if words else -1) + begins)
    return words
