"""Which words of a translation come from which of its source.

From the signature `attention`, which knows pieces, not words.

Axes: S source pieces, T target pieces.
"""

from collections.abc import Sequence

import numpy as np

from keras_transformer.translation.alignment import align_words

_SPACE = "▁".encode()
_END = b"</s>"


def word_links(
    source: str,
    translation: str,
    source_pieces: Sequence[bytes],
    target_pieces: Sequence[bytes],
    attention: np.ndarray,
) -> list[tuple[int, int]] | None:
    """Give each word of a translation the source word it looked at most.

    Words are what `str.split` finds.

    Args:
        source: The sentence.
        translation: Its translation.
        source_pieces: Of length S, filled up with "".
        target_pieces: Of length T, likewise.
        attention: float32 `(T, S)`.

    Returns:
        Pairs (source word, target word) counted from 0, in the order of the
        target; None where the pieces have other words than the texts, such as
        those of a source that was cut.
    """
    source_words = _words(source_pieces)
    target_words = _words(target_pieces)
    if len(source.split()) != len(set(source_words)):
        return None
    if len(translation.split()) != len(set(target_words)):
        return None
    return align_words(attention, source_words, target_words)


def _words(pieces: Sequence[bytes]) -> list[int]:
    """The number of the word that each piece belongs to, without the end."""
    words: list[int] = []
    for piece in pieces:
        if not piece or piece == _END:
            break
        begins = piece.startswith(_SPACE) or not words
        words.append((words[-1] if words else -1) + begins)
    return words
