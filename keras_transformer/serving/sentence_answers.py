"""Answers sentence by sentence: hypotheses, scores, linked words.

The links come from the signature `attention`, which knows pieces, not words.

Axes: S source pieces, T target pieces.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.serving.documents import Documents
from keras_transformer.serving.served_model import ServedModel
from keras_transformer.serving.service import Service
from keras_transformer.translation.alignment import align_words
from keras_transformer.translation.sentences import together

_SPACE = "▁".encode()
_END = b"</s>"


class Sentences:
    """Makes what the page shows of a document.

    Args:
        documents: Splits texts and knows the service.
    """

    def __init__(self, documents: Documents) -> None:
        self.documents = documents

    async def translate(
        self, model: ServedModel, text: str, n_best: int | None, links: bool
    ) -> dict[str, Any]:
        """Translate a document.

        Args:
            model: The version.
            text: Any text.
            n_best: The most hypotheses of a sentence; None for the best.
            links: Whether to find which words belong together.

        Returns:
            The answer of `/api/translate`.

        Raises:
            RefusalError: If there are too many sentences, or no room now.
        """
        (parts,) = await self.documents.search(model, [text], n_best or 1)
        sources = [text[slice(*part.span)] for part in parts]
        best = [part.hypotheses[0][0] for part in parts]
        words: list[Any] = [None] * len(parts)
        if links:
            pairs = list(zip(sources, best, strict=True))
            words = await linked_words(self.documents.service, model, pairs)
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
                for source, part, of_part in zip(
                    sources, parts, words, strict=True
                )
            ],
            "translation": together(text, [part.span for part in parts], best),
        }


async def linked_words(
    service: Service, model: ServedModel, pairs: Sequence[tuple[str, str]]
) -> list[list[tuple[int, int]] | None]:
    """Find the words that belong together in sentences and translations.

    Args:
        service: Answers requests.
        model: The version, in use until this returns.
        pairs: Each sentence with its translation.

    Returns:
        For each pair what `word_links` finds; None if the model has no
        signature `attention`.

    Raises:
        RefusalError: If there is no room now.
    """
    if "attention" not in model.signatures:
        return [None] * len(pairs)
    found: list[list[tuple[int, int]] | None] = []
    # A document has many matrices, so take those of one batch at a time.
    most = service.batcher.batching.max_batch_size
    for start in range(0, len(pairs), most):
        part = pairs[start : start + most]
        rows = [(one.encode(), other.encode()) for one, other in part]
        outputs = await service.run(model, "attention", rows)
        found += await asyncio.to_thread(_links, part, outputs)
    return found


def _links(
    pairs: Sequence[tuple[str, str]], outputs: Mapping[str, np.ndarray]
) -> list[list[tuple[int, int]] | None]:
    matrices = (
        outputs[name]
        for name in ("source_pieces", "target_pieces", "attention")
    )
    return [
        word_links(*pair, *of_pair)
        for pair, *of_pair in zip(pairs, *matrices, strict=True)
    ]


def word_links(
    source: str,
    translation: str,
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
) -> list[tuple[int, int]] | None:
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
