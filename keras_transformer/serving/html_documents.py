"""Translates HTML: the sentences change, the tags stay."""

from collections.abc import Sequence

from keras_transformer.serving.documents import Documents
from keras_transformer.serving.markup import Page, Part
from keras_transformer.serving.requests import RefusalError
from keras_transformer.serving.sentence_answers import linked_words
from keras_transformer.serving.served_model import ServedModel

# The most characters of a request. Beyond this, reading and placing can take
# seconds, for example with a tag of many thousand attributes.
MAX_HTML = 1 << 17


async def translate_html(
    documents: Documents, model: ServedModel, texts: Sequence[str]
) -> list[list[str]]:
    """Translate HTML, sentence by sentence.

    Args:
        documents: Translates texts.
        model: The version, in use until this returns.
        texts: HTML, whole pages or parts.

    Returns:
        For each text a list of its one translation.

    Raises:
        RefusalError: If there is too much, or no room now.
    """
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            400,
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML",
        )
    pages = await documents.read(texts, lambda: [Page(x) for x in texts])
    segments = [segment for page in pages for segment in page.segments]
    found = await documents.search(model, [each.text for each in segments])
    pairs = [
        (segment.text[slice(*part.span)], part.hypotheses[0][0])
        for segment, parts in zip(segments, found, strict=True)
        for part in parts
        if segment.has_elements
    ]
    links = iter(await linked_words(documents.service, model, pairs))

    def put_back() -> list[list[str]]:
        for segment, parts in zip(segments, found, strict=True):
            segment.put(
                [
                    Part(
                        part.span,
                        part.hypotheses[0][0],
                        next(links) if segment.has_elements else None,
                    )
                    for part in parts
                ]
            )
        return [[page.html()] for page in pages]

    return await documents.read(texts, put_back)
