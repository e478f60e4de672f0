"""Tokenises many texts at once, segmenting each word only once.

If no rule of the normalisation and no piece reaches over a space, a sentence's
byte-pair encoding is that of its words, end to end. Text repeats its words, so
most of them need only a look into a dictionary.
"""

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from keras_transformer import config
from keras_transformer.data.symbols import SPACE

# The most words remembered, about 100 MB, and the most characters in one.
MOST_WORDS = 500_000
LONGEST_WORD = 64

# Marks the end of a text, between spaces.
_END = "\n"

NFC = "nfc"  # What models call the rules of `normalization`.
BPE, USER_DEFINED = 2, 4  # A model's type, a piece's.
# The fields that we read of sentencepiece_model.proto: number, type and default
# of each. Its own classes need a newer protobuf than TensorFlow may have.
_FIELDS: dict[str, dict[str, tuple[int, str, str | None]]] = {
    "Piece": {
        "piece": (1, "STRING", ""),
        "score": (2, "FLOAT", "0"),
        "type": (3, "INT32", "1"),
    },
    "Trainer": {
        "model_type": (3, "INT32", "1"),
        "treat_whitespace_as_suffix": (24, "BOOL", "false"),
        "byte_fallback": (35, "BOOL", "false"),
    },
    "Normalizer": {
        "name": (1, "STRING", ""),
        "precompiled_charsmap": (2, "BYTES", ""),
        "add_dummy_prefix": (3, "BOOL", "true"),
        "remove_extra_whitespaces": (4, "BOOL", "true"),
        "escape_whitespaces": (5, "BOOL", "true"),
        "normalization_rule_tsv": (6, "STRING", ""),
    },
    "Model": {
        "pieces": (1, "Piece", None),
        "trainer_spec": (2, "Trainer", None),
        "normalizer_spec": (3, "Normalizer", None),
    },
}


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


def with_named_rules(model: bytes) -> bytes:
    """Name the rules of a model `NFC`, instead of the file they came from."""
    proto = parse_model(model)
    proto.normalizer_spec.name = NFC
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(proto.SerializeToString())


def is_bpe(model: bytes) -> bool:
    """Return whether a sentencepiece model is one of byte-pair encoding."""
    return bool(parse_model(model).trainer_spec.model_type == BPE)


def parse_model(model: bytes) -> Any:
    """Read the fields of `_FIELDS` from a serialised sentencepiece model."""
    file = descriptor_pb2.FileDescriptorProto(
        name="words.proto", package="words", syntax="proto2"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, (number, kind, default) in fields.items():
            field = described.field.add(
                name=name, number=number, label=kinds.LABEL_OPTIONAL
            )
            if kind in _FIELDS:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".words.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind}")
                field.default_value = default
            if name == "pieces":
                field.label = kinds.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = pool.FindMessageTypeByName("words.Model")
    return message_factory.GetMessageClass(described).FromString(model)


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
