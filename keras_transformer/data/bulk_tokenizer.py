"""Tokenises many texts at once, segmenting each word only once.

If no rule of the normalisation and no piece reaches over a space, a sentence's
byte-pair encoding is that of its words, end to end. Text repeats its words, so
most of them need only a look into a dictionary.
"""

import array
from collections.abc import Sequence

import numpy as np
import sentencepiece

from keras_transformer import config
from keras_transformer.data.sentencepiece_file import (
    BPE,
    NFC,
    USER_DEFINED,
    parse_model,
)
from keras_transformer.data.symbols import SPACE

# The most words remembered, about 100 MB, and the most characters in one.
MOST_WORDS = 500_000
LONGEST_WORD = 64

# Marks the end of a text, between spaces.
_END = "\n"


def are_independent(model: bytes) -> bool:
    """Return whether a sentencepiece model segments each word by itself."""
    proto = parse_model(model)
    rules, how = proto.normalizer_spec, proto.trainer_spec
    return bool(
        how.model_type == BPE
        # Neighbouring unknown characters would be one piece.
        and how.byte_fallback
        and not how.treat_whitespace_as_suffix
        # None of its rules holds a space.
        and rules.name in (NFC, "nmt_nfkc")
        and rules.add_dummy_prefix
        and rules.remove_extra_whitespaces
        and rules.escape_whitespaces
        and all(
            piece.type != USER_DEFINED and SPACE not in piece.piece[1:]
            for piece in proto.pieces
        )
    )


class Words:
    """The pieces of every word seen so far.

    Args:
        pieces: A model whose words are independent.
    """

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor) -> None:
        self._known = _Known(pieces)

    def tokenize(
        self, texts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Turn texts into ids, each ended by `EOS_ID`.

        Returns:
            The ids of all, int32 `(sum of lengths,)`, and the length of each,
            int64 `(len(texts),)`; None if a text holds the end mark.
        """
        text = f" {_END} ".join([*texts, ""])
        found = b"".join(map(self._known.__getitem__, text.split(" ")))
        ids = np.frombuffer(found, np.int32)
        ends = np.flatnonzero(ids == config.EOS_ID)
        if len(ends) != len(texts):
            return None
        return ids, np.diff(ends, prepend=-1)


class _Known(dict[str, bytes]):
    """Maps a word to its ids, int32 as bytes."""

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__({_END: array.array("i", [config.EOS_ID]).tobytes()})
        self._pieces = pieces

    def __missing__(self, word: str) -> bytes:
        ids = array.array("i", self._pieces.encode(word)).tobytes()
        if len(self) < MOST_WORDS and len(word) <= LONGEST_WORD:
            self[word] = ids
        return ids
