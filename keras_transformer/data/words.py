"""Word pieces of many texts at once, each word segmented a single time.

Byte-pair encoding of a sentence is that of its words end to end where no rule
of the normalisation and no piece reaches over a space. Text repeats its words:
most of them need no more than a look into a dictionary.
"""

import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sentencepiece

from keras_transformer import config

# Words remembered, about 100 MB of them, and characters in one.
MOST_WORDS = 500_000
LONGEST_WORD = 64

SPACE = "▁"  # As pieces spell it.
# Stands for the end of a text, between spaces.
_END = "\n"


def are_independent(model: bytes) -> bool:
    """Whether a sentencepiece model segments each word of a text alone."""
    whole = list(fields(model))
    pieces = [dict(fields(value)) for number, value in whole if number == 1]
    by_number = dict(whole)
    trained, rules = (
        dict(fields(by_number.get(number, b""))) for number in (2, 3)
    )
    return (
        trained.get(3) == 2  # model_type: byte-pair encoding.
        # byte_fallback: unknown characters that meet would be one piece.
        and bool(trained.get(35))
        and not trained.get(24)  # treat_whitespace_as_suffix
        # name: of its rules none holds a space.
        and rules.get(1) == b"nmt_nfkc"
        # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
        and all(rules.get(number, 1) for number in (3, 4, 5))
        and not any(
            piece.get(3) == 4  # Defined by a user.
            or SPACE in piece[1].decode()[1:]
            for piece in pieces
        )
    )


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: their numbers, and `int` or `bytes`.

    The messages that come with sentencepiece refuse older releases of
    protobuf than they were made with, which others may ask for.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, place = _varint(message, place)
        yield number, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and what follows it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


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
