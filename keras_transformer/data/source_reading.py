"""Sources are read generously, targets written exactly.

A character that a vocabulary has no piece for would reach the model as bytes
that it never met. In a source it becomes what it stands for, if that has
pieces: a no-break space a space, a soft hyphen or a vowel's point nothing, a
ligature its letters, a curly quote a straight one, a digit or a letter the same
one in another script or case. Where the vocabulary has the piece, nothing
changes, unless only the targets that it was learnt from gave it the piece. What
nothing stands for, such as an emoji, goes on as it is.

The table is made from the vocabulary and Unicode's data when a vocabulary is
loaded. It joins the normalisation of the sentencepiece model for sources, which
Python, the bulk tokenizer and every graph run alike.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import sentencepiece

from keras_transformer.data.pieces import SPACE
from keras_transformer.data.sentencepiece_file import (
    NORMAL,
    USER_DEFINED,
    parse_model,
)

# They show nothing: Unicode's Default_Ignorable_Code_Point, first to last, what
# stands for a picture, and what stretches Arabic words.
_IGNORABLE = (
    "\xad\xad \u034f\u034f \u061c\u061c \u0640\u0640 \u115f\u1160 \u17b4\u17b5 "
    "\u180b\u180f \u200b\u200f \u202a\u202e \u2060\u206f \u20e3\u20e3 "
    "\u3164\u3164 \ufe00\ufe0f \ufeff\ufeff \uffa0\uffa0 \ufffc\ufffc "
    "\U0001bca0\U0001bca3 \U0001d173\U0001d17a \U000e0000\U000e0fff"
).split()
# Categories of characters that show nothing.
_INVISIBLE = ("Zs", "Zl", "Zp", "Cc", "Cf")
_SPACES = "\t\n\v\f\r\x85\u1680\u2028\u2029\u2800"  # No compatibility forms.
# Marks by their combining classes: points of Hebrew and Arabic, and accents.
# Those that make a letter of its own compose with it.
_POINTS = {*range(10, 36), *range(202, 241)}
# Typographic quotes, dashes, bullets, letters of other keyboards, radicals that
# PDFs have in place of characters: each stands for the first of its row that
# has a piece.
_ALIKE = """
'’‘‚‛′ʼ´`‹›׳ "”“„‟″«»״ -‐‑–—‒―−─־•·▪‣◦●∙⁃\uf0b7 /⁄ ~～〜
.٫ ,，٬ :：∶ ;； ?？ !！ (（ )） %٪
يی كک еёЁ 高髙 崎﨑 民⺠ 母⺟ 西⻄ 见⻅ 角⻆ 贝⻉ 车⻋ 長⻑ 长⻓
门⻔ 青⻘ 页⻚ 风⻛ 飞⻜ 食⻝ 马⻢ 骨⻣ 鬼⻤ 鱼⻥ 鸟⻦ 麦⻨ 黄⻩ 齐⻬ 齿⻮ 龙⻰
""".split()
_STAYS = re.compile("(?:[!-_a-~]| (?! ))*").fullmatch  # In `forms_of`.
_DIGITS = "0123456789０１２３４５６７８９"
_NOTES = "⁰¹²³⁴⁵⁶⁷⁸⁹①②③④⑤⑥⑦⑧⑨"  # Footnotes, and powers.
# A mark of voicing may be a character of its own: each, and what composes.
_KANA = [*map(chr, (*range(0x3041, 0x30FF), *range(0xFF66, 0xFF9E)))]
_VOICED = "゛\u3099 ゜\u309a \uff9e\u3099 \uff9f\u309a".split()


def is_visible(text: str) -> bool:
    """Return whether a text has a character that shows something."""
    return any(unicodedata.category(x) not in _INVISIBLE for x in text)


def is_singleton(character: str) -> bool:
    """Return whether Unicode takes it for another character, in any text."""
    plain = unicodedata.decomposition(character)
    return bool(plain) and " " not in plain


def forms_of(text: str) -> list[str]:
    """Return what each character stands for in any text, in its own case.

    Of several spaces all but the first are nothing. Accents stay.
    """
    if _STAYS(text):
        return [*text]
    forms = [*map(_form, text)]
    pairs = itertools.pairwise(["", *forms])
    return ["" if last == form == " " else form for last, form in pairs]


@functools.cache
def _form(character: str) -> str:
    if character == "\n" or character in "\u200c\u200d":
        return character  # A joiner shows.
    if character.isspace():
        return " "
    is_point = 10 <= unicodedata.combining(character) < 36
    if is_point or any(x[0] <= character <= x[1] for x in _IGNORABLE):
        return ""
    if unicodedata.normalize("NFD", character) == character:
        character = next((x for x in _ALIKE if character in x), character)[0]
    kind = unicodedata.decomposition(character).partition(">")[0]
    is_form = kind in ("<wide", "<narrow") or "ﬀ" <= character <= "ﬆ"
    return unicodedata.normalize("NFKD" if is_form else "NFD", character)


def for_sources(model: bytes, pieces: Iterable[str] | None = None) -> bytes:
    """Return a serialised sentencepiece model that reads generously.

    Args:
        model: The model.
        pieces: The pieces that texts may have, if not all of the model's.
    """
    proto = parse_model(model)
    if pieces is None:
        kinds = NORMAL, USER_DEFINED
        pieces = (each.piece for each in proto.pieces if each.type in kinds)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    sentencepiece.set_min_log_level(3)
    # The "2" of `<kept2>` is no piece. One with a space is found when read.
    symbols = {x.piece for x in proto.pieces if x.type == USER_DEFINED}
    symbols = {x for x in symbols if x[0] not in (SPACE, x)}
    met = filter({*proto.unmet_in_sources}.isdisjoint, {*pieces} - symbols)
    rules = _table(processor, {*met, " "})
    if proto.normalizer_spec.precompiled_charsmap:
        own = sentencepiece.SentencePieceNormalizer(model_proto=model)
        rules = {x: rules.get(y, y) for x, y in own.Decompile()} | rules
    compiled = sentencepiece.SentencePieceNormalizer(norm_map=[*rules.items()])
    spec = parse_model(compiled.serialized_model_proto()).normalizer_spec
    proto.normalizer_spec.precompiled_charsmap = spec.precompiled_charsmap
    return bytes(proto.SerializeToString())


def _table(processor: Any, pieces: set[str]) -> dict[str, str]:
    """Map texts without pieces to what they stand for, if that has pieces."""
    known = frozenset[str]().union(*pieces)
    alike = {
        character: next((x for x in row if x in pieces), character)
        for row in (*_rows(), *_ALIKE)
        for character in {*row} - pieces
    }
    # Between words without spaces it is no hyphen.
    alike |= {x: f" {alike[x]} " for x in "—―" if x in alike}
    table = _dashes(pieces, known) if {",", "-"} <= pieces else {}
    # If '"' has no piece, it opens, or behind a word closes.
    pair = next(filter(pieces.issuperset, '"" «» “” „“ „”'.split()), '""')
    if pair[0] != pair[1]:
        alike |= (marks := dict.fromkeys({*'"”“„‟″'} - pieces, pair[0]))
        ends = [x for x in known if x.isalnum() or x in ".,!?…)"]
        table |= {x + y: x + pair[1] for x in ends for y in marks}
    alike = str.maketrans(alike)
    for text, meaning in _meanings().items():
        if not known.issuperset(text):
            meaning = meaning.translate(alike)
            # By the rules that the vocabulary has already.
            now, plain = (
                x.replace(SPACE, " ").strip(" ")
                for x in processor.normalize([text, meaning])
            )
            if not known.issuperset(now) and pieces.issuperset(plain):
                end = " " * meaning[1:].endswith(" ")
                table[text] = " " * meaning.startswith(" ") + plain + end
    return table


def _dashes(pieces: set[str], known: frozenset[str]) -> dict[str, str]:
    """Map dashes between words, but not numbers, to others or to commas."""
    dash = next(x for x in (" — ", " – ", ", ") if x.strip() in pieces)
    spaces, table = " \xa0\u2009\u200a\u202f", dict[str, str]()
    for mark in {*"–—―"} - known:
        for text in map("".join, itertools.product(spaces, mark, spaces)):
            table |= {x + text: f"{x} - " for x in _DIGITS} | {text: dash}
        if mark != "–":  # Of Chinese they are two.
            letters = (x for x in known if x.isalpha())
            for x, both in itertools.product(letters, (mark, 2 * mark)):
                table[x + both] = x + dash
    return table


@functools.cache
def _meanings() -> dict[str, str]:
    """Map every text that may stand for another one to that."""
    meanings = {character: character for row in _rows() for character in row}
    for character in map(chr, range(0x30000)):
        is_form = unicodedata.decomposition(character).startswith("<")
        if is_form or is_singleton(character):
            plain = unicodedata.normalize(
                "NFKC" if is_form else "NFC", character
            )
            if unicodedata.category(character) == "Zs":
                plain = " "
            elif "⁄" in plain:
                plain = f" {plain}"  # "1½" is not "11/2".
            meanings[character] = plain
        elif unicodedata.combining(character) in _POINTS:
            meanings[character] = ""
    for kana, both in itertools.product(_KANA, _VOICED):
        plain = unicodedata.normalize("NFKC", kana + both[1])
        meanings[kana + both[0]] = plain
    for number, note in itertools.product(_DIGITS[:10], _NOTES):
        # "2024¹" is not "20241".
        plain = unicodedata.normalize("NFKC", note)
        meanings[number + note] = f"{number} {plain}"
    meanings |= {character: character for row in _ALIKE for character in row}
    meanings |= dict.fromkeys(_SPACES, " ")
    meanings |= {"\u0e4d\u0e32": "\u0e33", "⋯": "…", "・・・": "…"}
    # Between parts of names it has no sound, but "1・2" is not "12".
    meanings |= dict.fromkeys("・･‧", "")
    meanings |= {x + dot: f"{x}、" for x in _DIGITS for dot in "・･"}
    for span in _IGNORABLE:
        points = range(ord(span[0]), ord(span[1]) + 1)
        meanings |= dict.fromkeys(map(chr, points), "")
    return meanings


@functools.cache
def _rows() -> list[str]:
    """Rows of one digit in all scripts, or of one letter in both cases."""
    rows = collections.defaultdict[int | str, str](str)
    for character in map(chr, range(0x10000)):
        rows[unicodedata.decimal(character, character.lower())] += character
    return [row for row in rows.values() if len(row) > 1]
