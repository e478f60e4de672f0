"""The file of a vocabulary, a sentencepiece model: its fields and its rules.

The rules say how a new vocabulary normalises text.

`nfc` changes no character into another: it writes the same text in one way.
Every spelling of a composed character becomes that character (U+00E9 for "e"
and U+0301, a Hangul syllable for its letters), and up to three points of one
script that follow each other, such as a vowel and the doubling of Hebrew or
Arabic, come in Unicode's order. That is Unicode's NFC, except that other marks
that do not compose stay in the order in which they were written, and keep
later ones from composing. The text stays canonically equivalent even then.
Tabs, line ends and spaces at which a line may break become a space. Control
characters but the zero byte, and byte-order marks, go. No-break spaces, the
ideographic space, joiners, zero-width spaces, marks of direction and U+FFFD
stay. "▁" stands for the space inside pieces, so it becomes one too.

`nfkc` is sentencepiece's `nmt_nfkc`, which folds much more: Unicode NFKC,
except that "～" stays as it is. Every kind of space and U+FFFD become a space,
U+200C too; zero-width spaces and marks of direction go, and so do control
characters other than the zero byte and U+0085.

The rules of `nfc` know the Unicode version of the Python that trains a
vocabulary; the vocabulary keeps them.
"""

import collections
import itertools
import os
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

NFC = "nfc"  # What models call our rules.
BPE = 2  # A model's type.
NORMAL, USER_DEFINED = 1, 4  # A piece's.
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


# Combining classes of points that belong to one script, such as vowels.
_POINTS = range(1, 200)
# Points in a row that are put in order.
_MOST_POINTS = 3
# The byte-order mark, and what stands for the space inside pieces.
_DELETED, _SPACES = "\ufeff", "▁"
_LINE_ENDS = "\t\n\v\f\r\x85"


def write_rules(path: str | os.PathLike) -> None:
    """Write `nfc` as a `normalization_rule_tsv` of sentencepiece.

    Each line has the code points of a text, a tab and those that replace it.
    sentencepiece replaces the longest text first, and looks at each place once.
    """
    with open(path, "w", encoding="ascii", newline="\n") as file:
        for text, replacement in sorted(_rules().items()):
            for end, part in ("\t", text), ("\n", replacement):
                file.write(" ".join(f"{ord(x):X}" for x in part) + end)


def _rules() -> dict[str, str]:
    """Map every text of a few characters that is not as it should be."""
    characters = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) not in ("Cs", "Cn", "Co")
    ]
    # By their full decomposition.
    composed = collections.defaultdict(list)
    points = collections.defaultdict(list)  # By script.
    for character in characters:
        if not unicodedata.is_normalized("NFD", character):
            composed[unicodedata.normalize("NFD", character)].append(character)
        if unicodedata.combining(character) in _POINTS:
            script = unicodedata.name(character).split()[0]
            points[script].append(character)
    texts = itertools.chain(
        characters,
        *(
            _spellings(parts, composed)
            for parts in composed
            if len(unicodedata.normalize("NFC", parts)) < len(parts)
        ),
        *(
            map("".join, itertools.permutations(of_script, count))
            for of_script in points.values()
            for count in range(2, _MOST_POINTS + 1)
        ),
    )
    rules = {
        text: unicodedata.normalize("NFC", text)
        for text in texts
        if not unicodedata.is_normalized("NFC", text)
    }
    for character in characters:
        if _is_space(character):
            rules[character] = " "
        elif unicodedata.category(character) == "Cc" or character in _DELETED:
            rules[character] = ""
    # Neither needs a rule, and sentencepiece takes none for the zero byte.
    del rules["\0"], rules[" "]
    return rules


def _is_space(character: str) -> bool:
    """Return whether it ends a line, or a line may break at it."""
    if unicodedata.category(character) in ("Zs", "Zl", "Zp"):
        kind = unicodedata.decomposition(character).partition(" ")[0]
        return kind not in ("<noBreak>", "<wide>")
    return character in _LINE_ENDS + _SPACES


def _spellings(
    parts: str, composed: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Write fully decomposed text in every canonically equivalent way."""
    for marks in set(itertools.permutations(parts[1:])):
        ordered = parts[0] + "".join(marks)
        if unicodedata.normalize("NFD", ordered) == parts:
            yield from _partly_composed(ordered, composed)


def _partly_composed(
    parts: str, composed: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Compose no, some or all neighbours of a text."""
    if not parts:
        yield ""
    for end in range(1, len(parts) + 1):
        begins = [*parts[:end]] if end == 1 else []
        for begin in [*begins, *composed.get(parts[:end], ())]:
            for rest in _partly_composed(parts[end:], composed):
                yield begin + rest
