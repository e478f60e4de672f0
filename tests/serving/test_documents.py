"""Documents come apart into sentences and together again."""

import asyncio
import re
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.documents import (
    Documents,
    Span,
    halves,
    sentence_spans,
    together,
)
from keras_transformer.serving.limits import Batching, Limits
from keras_transformer.serving.service import Service

TEXT = (
    "\n  Dr. Smith came home.  He was tired.\r\n\r\n"
    "- No end here\n\t \nWho? Me!\u2003Yes. "
)
SENTENCES = [
    *("Dr. Smith came home.", "He was tired.", "- No end here"),
    *("Who?", "Me!", "Yes."),
]


def cut_out(text, spans):
    return [text[span.start : span.end] for span in spans]


def test_sentences_are_found_where_they_are():
    assert cut_out(TEXT, sentence_spans(TEXT, "en")) == SENTENCES


@pytest.mark.parametrize("text", ["", " \n\t\r\n ", "\u2003"])
def test_space_alone_has_no_sentences_and_stays(text):
    assert sentence_spans(text, "en") == []
    assert together(text, [], []) == text


def test_translations_take_the_places_of_their_sentences():
    spans = sentence_spans(TEXT, "en")
    assert together(TEXT, spans, SENTENCES) == TEXT
    numbers = [f"<{i}>" for i in range(len(spans))]
    assert together(TEXT, spans, numbers) == (
        "\n  <0>  <1>\r\n\r\n<2>\n\t \n<3> <4>\u2003<5> "
    )


def test_sentences_without_a_space_between_get_one():
    text = "你好。再见。"
    spans = sentence_spans(text, "zh")
    assert cut_out(text, spans) == ["你好。", "再见。"]
    assert together(text, spans, ["Hello.", "Bye."]) == "Hello. Bye."


def test_a_long_line_has_the_sentences_of_a_short_one():
    sentence = "The answer of Dr. Smith is four. "
    text = sentence * 1_009
    found = sentence_spans(text, "en")
    assert cut_out(text, found) == [sentence.strip()] * 1_009
    # Without an end, and with what sentencex needs long for.
    text = "“" * 20_011
    assert "".join(cut_out(text, sentence_spans(text, "en"))) == text


def test_any_text_comes_together_as_it_was():
    draw = np.random.default_rng(3)
    letters = [*"aB\n\r \u2028\xa0\x0b。😀", ". ", "! "]
    for _ in range(300):
        text = "".join(draw.choice(letters, draw.integers(1, 31)))
        spans = sentence_spans(text, "en")
        same = together(text, spans, cut_out(text, spans))
        # But for the spaces between sentences that stood without.
        assert re.sub(r"\s", "", same) == re.sub(r"\s", "", text)
        assert re.findall(r"[\r\n]", same) == re.findall(r"[\r\n]", text)


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
