"""Word pieces of many texts at once, each word segmented a single time.

Byte-pair encoding of a sentence is that of its words end to end where no rule
of the normalisation and no piece reaches over a space. Text repeats its words:
most of them need no more than a look into a dictionary.
"""

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_transformer import config

# Words remembered, about 100 MB of them, and characters in one.
MOST_WORDS = 500_000
LONGEST_WORD = 64

SPACE = "▁"  # As pieces spell it.
# Stands for the end of a text, between spaces.
_END = "\n"


def are_independent(model: bytes) -> bool:
    """Whether a sentencepiece model segments each word of a text alone."""
    messages: Any = sentencepiece_model_pb2  # Made without types.
    proto = messages.ModelProto.FromString(model)
    kinds = messages.ModelProto.SentencePiece
    rules, how = proto.normalizer_spec, proto.trainer_spec
    return (
        how.model_type == how.BPE
        # Unknown characters that meet would be one piece.
        and how.byte_fallback
        and not how.treat_whitespace_as_suffix
        # Of its rules none holds a space.
        and rules.name == "nmt_nfkc"
        and rules.add_dummy_prefix
        and rules.remove_extra_whitespaces
        and rules.escape_whitespaces
        and all(
            piece.type != kinds.USER_DEFINED and SPACE not in piece.piece[1:]
            for piece in proto.pieces
        )
    )


class Words:
    """The pieces of every word that has come up.

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
            int64 `(len(texts),)`; None where a text holds what marks its end.
        """
        text = f" {_END} ".join([*texts, ""])
        found = b"".join(map(self._known.__getitem__, text.split(" ")))
        ids = np.frombuffer(found, np.int32)
        ends = np.flatnonzero(ids == config.EOS_ID)
        if len(ends) != len(texts):
            return None
        return ids, np.diff(ends, prepend=-1)


class _Known(dict[str, bytes]):
    """From a word to its ids, int32 as bytes."""

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__({_END: array.array("i", [config.EOS_ID]).tobytes()})
        self._pieces = pieces

    def __missing__(self, word: str) -> bytes:
        ids = array.array("i", self._pieces.encode(word)).tobytes()
        if len(self) < MOST_WORDS and len(word) <= LONGEST_WORD:
            self[word] = ids
        return ids
