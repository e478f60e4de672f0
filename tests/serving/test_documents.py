"""Documents come apart into sentences and together again."""

import asyncio
from types import SimpleNamespace

import numpy as np

from keras_transformer.machine.batching_file import Batching
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.documents import (
    Documents,
    halves,
)
from keras_transformer.serving.limits import Limits
from keras_transformer.serving.service import Service
from keras_transformer.translation.sentences import Span


def cut_out(text, spans):
    return [text[span.start : span.end] for span in spans]


def test_halves_are_cut_at_the_space_in_the_middle():
    text = "x one two three y"
    first, second = halves(text, Span(2, 15))
    assert cut_out(text, [first, second]) == ["one two", "three"]
    assert halves("abcdefg", Span(1, 6)) == (Span(1, 3), Span(3, 6))
    assert halves("abc", Span(1, 2)) is None


class ShortModel:
    """Translates into capitals, and cuts after seven bytes."""

    padded = frozenset()
    card = SimpleNamespace(source_lang="en", search={"max_source_length": 7})

    def __init__(self):
        self.texts = []

    def inputs(self, signature):
        return ["text"]

    def run(self, signature, rows):
        texts = [text for (text,) in rows]
        self.texts += texts
        return {
            "translation": np.array([t[:7].upper() for t in texts], object),
            "truncated": np.array([len(text) > 7 for text in texts]),
        }


def translate(*texts):
    async def ask():
        batcher = Batcher(Batching(3, batch_timeout_micros=0))
        service = Service("name", None, batcher, Limits())
        return await Documents(service).translate(ShortModel(), texts)

    return asyncio.run(ask())


def test_what_the_model_would_cut_is_halved_until_nothing_is_lost():
    assert translate("a wooden box of many words. So.\n\nbreathtakingly") == [
        "A WOODEN BOX OF MANY WORDS. SO.\n\nBREATHT AKINGLY"
    ]


def test_the_texts_of_a_list_stay_apart_and_in_order():
    texts = [f"{'Yes. ' * (i % 3)}No {i}." for i in range(11)]
    assert translate(*texts) == [text.upper() for text in texts]
