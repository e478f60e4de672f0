"""Where sentences end: sentencex, which knows many languages' abbreviations."""

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
    sentencex = extras.needs("sentencex", "sentences")
    parts = (part.strip() for part in sentencex.segment(language, text))
    return [part for part in parts if part]
