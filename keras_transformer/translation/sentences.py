"""Where sentences end: sentencex, which knows many languages' abbreviations."""

import sentencex


def split(text: str, language: str) -> list[str]:
    """Split a text into its sentences.

    Args:
        text: Any text.
        language: Its code, such as `en`; one without rules of its own is split
            like a related language, or English.

    Returns:
        The sentences in order, without the space around them; none where there
        is nothing but space.
    """
    parts = (part.strip() for part in sentencex.segment(language, text))
    return [part for part in parts if part]
