"""Finds the words of a text, in languages without spaces too."""

import functools
import logging
import re
import unicodedata
from typing import Any

from keras_transformer.data.languages import language_of
from keras_transformer.machine import extras

logger = logging.getLogger("keras_transformer")


def words_of(text: str, language: str) -> list[tuple[int, int]]:
    """Find the words of a text.

    They stand between white space. Where a language puts none between words,
    they are what ICU finds with its rules and dictionaries, marks among them,
    or without `icu4py` characters with the marks that belong to them.

    Args:
        text: The text.
        language: Its language code, in any spelling.

    Returns:
        The start and the end of each word in `text`.
    """
    if language_of(language).has_spaces:
        return [found.span() for found in re.finditer(r"\S+", text)]
    breakers = _icu()
    if breakers:
        # ICU counts in UTF-16, and refuses halves of its pairs.
        encoded = text.encode("utf-16-le", "replace")
        lengths = [
            len(encoded[2 * start : 2 * end].decode("utf-16-le"))
            for start, end in breakers.WordBreaker(
                encoded.decode("utf-16-le"), language_of(language).base
            ).segments()
        ]
    else:
        lengths = []
        for character in text:
            if lengths and unicodedata.category(character).startswith("M"):
                lengths[-1] += 1
            else:
                lengths.append(1)
    found, end = [], 0
    for length in lengths:
        start, end = end, end + length
        if not text[start:end].isspace():
            found.append((start, end))
    return found


@functools.cache
def _icu() -> Any:
    """Import ICU's break iterators, or say once that they are missing."""
    try:
        from icu4py import breakers
    except ImportError:
        logger.warning(
            "Every character counts as a word where a language has no spaces; "
            "to find words, run %s.",
            extras.install_command("words"),
        )
        return None
    return breakers
