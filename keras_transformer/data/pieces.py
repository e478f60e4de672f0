"""Strings that stay one piece in the vocabulary: brackets, tags, placeholders.

A file has one on each line. A symbol is one piece everywhere, even inside a
word, and no normalisation touches it. As a word of its own it follows the piece
"▁" for the space. A symbol written with a first "▁" includes that space in its
piece, and is a symbol only where a word begins; it has to be composed (NFC), as
the text is where it is looked for.

This module does not need TensorFlow, so that a mistake shows before it loads.
"""

import os
import re
import unicodedata
from collections.abc import Sequence

from keras_transformer.config import UserError
from keras_transformer.data import lines
from keras_transformer.data.texts import checked_texts

TOKENIZER_FILE = "tokenizer.model"  # In a run directory.
SPACE = "▁"  # As pieces spell it.
# A mark in a source: around words, and before what is wanted in their place.
TERM, AS, END = MARKS = "<term>", "<as>", "</term>"
# What stands for it where the text becomes pieces; what is wanted follows, and
# the end of the mark.
KEPT = tuple(f"<kept{number}>" for number in range(6))
TERM_SYMBOLS = *KEPT, END
# The names of the four ids and of the bytes in a vocabulary.
SPECIAL = re.compile(r"<pad>|<unk>|<s>|</s>|<0x[0-9A-F]{2}>|▁")


def read_symbols(given: str | os.PathLike | Sequence[str]) -> tuple[str, ...]:
    """Read a file of symbols in UTF-8, or take a list, and check them."""
    if isinstance(given, str | os.PathLike):
        name = str(given)
        with lines.open_file(given, "`symbols`") as file:
            symbols = tuple(lines.read_lines(file, name))
    else:
        name, symbols = "symbols", tuple(checked_texts("symbols", given))
    if not symbols:
        raise UserError(
            f"Expected symbols in {name}, one a line, found none; write some "
            "or leave out `symbols`."
        )
    for number, symbol in enumerate(symbols, start=1):
        _check(symbol, f"line {number} of {name}")
    return tuple(dict.fromkeys(symbols))


def _check(symbol: str, where: str) -> None:
    has_space = " " in symbol or SPACE in symbol[1:]
    if not symbol or has_space or not symbol.isprintable():
        raise UserError(
            "Expected a symbol without spaces and invisible characters in "
            f"{where}, found {symbol!r}; a space before it is written {SPACE}."
        )
    if SPECIAL.fullmatch(symbol):
        raise UserError(
            "Expected symbols that the vocabulary does not have, found "
            f"{symbol} in {where}; choose another one."
        )
    # Such a symbol is looked for in text that is already normalised.
    is_normal = unicodedata.is_normalized("NFC", symbol)
    if symbol[0] == SPACE and not is_normal:
        raise UserError(
            "Expected a symbol that stays as it is under NFC after the "
            f"{SPACE} in {where}, found {symbol}; leave out the {SPACE}."
        )
