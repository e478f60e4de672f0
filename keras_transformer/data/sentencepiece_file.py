"""The file of a vocabulary, a sentencepiece model, and its words.

Many texts are tokenised at once by segmenting each word only once: if no rule
of the normalisation and no piece reaches over a space, a sentence's byte-pair
encoding is that of its words, end to end. Text repeats its words, so most of
them need only a look into a dictionary.
"""

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)

from keras_transformer import config
from keras_transformer.data.pieces import SPACE

NFC = "nfc"  # What models call the rules of `learning`.
BPE = 2  # A model's type.
NORMAL, USER_DEFINED = 1, 4  # A piece's.
# The most words remembered, about 100 MB, and the most characters in one.
MOST_WORDS = 500_000
LONGEST_WORD = 64
# Marks the end of a text, between spaces.
_END = "\n"
# The fields that we read of sentencepiece_model.proto, and one of our own where
# it has room. Its own classes need a newer protobuf than TensorFlow may have.
_FIELDS = """
name: "words.proto" package: "words"
message_type { name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
}
message_type { name: "Trainer"
  field { name: "model_type" number: 3 type: TYPE_INT32 default_value: "1" }
  field { name: "treat_whitespace_as_suffix" number: 24 type: TYPE_BOOL }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL }
}
message_type { name: "Normalizer"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "precompiled_charsmap" number: 2 type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL
          default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL
          default_value: "true" }
  field { name: "escape_whitespaces" number: 5 type: TYPE_BOOL
          default_value: "true" }
  field { name: "normalization_rule_tsv" number: 6 type: TYPE_STRING }
}
message_type { name: "Model"
  field { name: "pieces" number: 1 type_name: "Piece" type: TYPE_MESSAGE
          label: LABEL_REPEATED }
  field { name: "trainer_spec" number: 2 type_name: "Trainer"
          type: TYPE_MESSAGE }
  field { name: "normalizer_spec" number: 3 type_name: "Normalizer"
          type: TYPE_MESSAGE }
  field { name: "denormalizer_spec" number: 5 type_name: "Normalizer"
          type: TYPE_MESSAGE }
  field { name: "unmet_in_sources" number: 200 type: TYPE_STRING }
}
"""


def parse_model(model: bytes) -> Any:
    """Read the fields of `_FIELDS` from a serialised sentencepiece model."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_FIELDS, descriptor_pb2.FileDescriptorProto()))
    described = pool.FindMessageTypeByName("words.Model")
    return message_factory.GetMessageClass(described).FromString(model)


def with_pieces(model: bytes, texts: Sequence[str]) -> bytes:
    """Let texts stay one piece each, and add the pieces that it lacks."""
    proto = parse_model(model)
    known = {piece.piece: piece for piece in proto.pieces}
    for text in texts:
        piece = known.get(text) or proto.pieces.add(piece=text)
        piece.score, piece.type = 0.0, USER_DEFINED
    return bytes(proto.SerializeToString())


def are_independent(model: bytes) -> bool:
    """Return whether a sentencepiece model segments each word by itself."""
    proto = parse_model(model)
    rules, how = proto.normalizer_spec, proto.trainer_spec
    return bool(
        how.model_type == BPE
        # Neighbouring unknown characters would be one piece.
        and how.byte_fallback
        and not how.treat_whitespace_as_suffix
        # None of its rules holds a space, but for those of some dashes.
        and rules.name in (NFC, "nmt_nfkc")
        and rules.add_dummy_prefix
        and rules.remove_extra_whitespaces
        and rules.escape_whitespaces
        and all(
            piece.type != USER_DEFINED and SPACE not in piece.piece[1:]
            for piece in proto.pieces
        )
    )


class Words(dict[str, bytes]):
    """Maps every word seen so far to its ids, int32 as bytes.

    Args:
        pieces: A model whose words are independent.
    """

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__({_END: array.array("i", [config.EOS_ID]).tobytes()})
        self._pieces = pieces
        # Those that are read otherwise between spaces.
        self._dashes = [
            f"{x} "
            for x in "–—―"
            if pieces.encode(f"a {x} a")
            != sum(pieces.encode(["a", x, "a"]), [])
        ]

    def __missing__(self, word: str) -> bytes:
        ids = array.array("i", self._pieces.encode(word)).tobytes()
        if len(self) < MOST_WORDS and len(word) <= LONGEST_WORD:
            self[word] = ids
        return ids

    def tokenize(
        self, texts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Turn texts into ids, each ended by `EOS_ID`.

        Returns:
            The ids of all, int32 `(sum of lengths,)`, and the length of each,
            int64 `(len(texts),)`; None if a text holds the end mark, or a dash
            that needs its neighbours.
        """
        if any(x in text for x in self._dashes for text in texts):
            return None
        words = f" {_END} ".join([*texts, ""]).split(" ")
        ids = np.frombuffer(b"".join(map(self.__getitem__, words)), np.int32)
        ends = np.flatnonzero(ids == config.EOS_ID)
        if len(ends) != len(texts):
            return None
        return ids, np.diff(ends, prepend=-1)
