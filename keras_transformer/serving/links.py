"""Finds which words of a sentence and its translation belong together.

The signature `attention` knows pieces, not words; these are put together here.

Axes: S source pieces, T target pieces.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.data.languages import words_of
from keras_transformer.serving.service import Job, Sentence
from keras_transformer.serving.versions import languages_of
from keras_transformer.translation.alignment import (
    align_words,
    words_of_pieces,
)

_SPACE = "▁".encode()
_END = b"</s>"
_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")

Links = list[tuple[int, int]]  # Source words with target words, from 0.


async def linked_words(
    job: Job, sentences: Sequence[Sentence]
) -> list[Links | None]:
    """Find the words that belong together, if the model can tell."""
    batcher, model = job.service.batcher, job.model
    if "attention" not in model.signatures:
        return [None] * len(sentences)
    languages = languages_of(model)
    names = "source_pieces", "target_pieces", "attention"

    def link(sentence: Sentence, *of_pieces: Any) -> Links | None:
        pair = sentence.source, sentence.best
        return word_links(pair, languages, *of_pieces)

    found: list[Links | None] = []
    # The matrices of a document take much memory: one batch at a time.
    size = batcher.batching.max_batch_size
    for start in range(0, len(sentences), size):
        part = sentences[start : start + size]
        rows = [(x.source.encode(), x.best.encode()) for x in part]
        outputs = await batcher.run(model, "attention", rows)
        columns = [outputs[name] for name in names]
        found += await job.collect(map(link, part, *columns))
    return found


def word_links(
    pair: tuple[str, str],
    languages: tuple[str, str],
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
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
    pieces_of = source_pieces, target_pieces
    for text, pieces, language in zip(pair, pieces_of, languages, strict=True):
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
