"""Reads a serialised sentencepiece model, and changes its rules and symbols."""

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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


def with_named_rules(model: bytes) -> bytes:
    """Name the rules of a model `NFC`, instead of the file they came from."""
    proto = parse_model(model)
    proto.normalizer_spec.name = NFC
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(proto.SerializeToString())


def with_symbols(model: bytes, symbols: Sequence[str]) -> bytes:
    """Make symbols of a model's pieces, and add those that it lacks."""
    proto = parse_model(model)
    known = {piece.piece: piece for piece in proto.pieces}
    for symbol in symbols:
        piece = known.get(symbol) or proto.pieces.add(piece=symbol)
        piece.score, piece.type = 0.0, USER_DEFINED
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
