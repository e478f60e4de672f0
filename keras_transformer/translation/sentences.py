"""Where sentences end: sentencex, which knows many languages' abbreviations."""

import re

from keras_transformer import extras


def split(text: str, language: str) -> list[str]:
    """Split a text into its sentences.

    Args:
        text: Any text.
        language: Its code, such as `en`; one without rules of its own is split
            like a related language, or English.

    Returns:
        The sentences in order, without the space around them; none where there
        is nothing but space.

    Raises:
        UserError: If sentencex is missing.
    """
    return [text[begin:end] for begin, end in spans(text, language)]


def spans(text: str, language: str) -> list[tuple[int, int]]:
    """Find where sentences begin and end.

    Args:
        text: Any text.
        language: Its code, as in `split`.

    Returns:
        For each sentence of `split` the places of its first character and of
        that after its last. Between them is nothing but space.

    Raises:
        UserError: If sentencex is missing.
    """
    sentencex = extras.needs("sentencex", "sentences")
    # sentencex 1.0.32 ends in a panic at "A\u00a0. B": it takes every space to
    # be one byte long.
    plain = re.sub(r"[^\S\r\n]", " ", text)
    found = []
    position = 0
    for part in sentencex.segment(language, plain):
        begin = position + len(part) - len(part.lstrip())
        end = position + len(part.rstrip())
        position += len(part)
        if begin < end:
            found.append((begin, end))
    return found
