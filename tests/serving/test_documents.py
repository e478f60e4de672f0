"""Documents come apart into sentences and together again."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from still_model import StillModel
from word_by_word_model import CARD, WordByWord

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.libretranslate_api import translate_html
from keras_transformer.serving.limits import Batching, Limits, RefusalError
from keras_transformer.serving.service import Job, Service
from keras_transformer.translation.sentences import Span, Splitter

pytestmark = pytest.mark.anyio
MARK = "<term>(.*?)<as></term>"


@pytest.mark.parametrize(
    ("language", "text", "parts"),
    [
        ("en", "one two three", ["one two", "three"]),
        ("en", "abcde", ["ab", "cde"]),
        ("th", "ฉันชอบเรียนภาษาไทย", ["ฉันชอบเรียน", "ภาษาไทย"]),
    ],
)
def test_halves_are_cut_between_the_words_in_the_middle(language, text, parts):
    halves = Splitter(language, "de").halves
    span = Span(2, 2 + len(text))
    text = f"x {text} y"
    assert [text[slice(*half)] for half in halves(text, span)] == parts
    assert halves(text, Span(2, 3)) is None


class ShortModel(StillModel):
    """Translates into capitals, and cuts after seven bytes."""

    signatures = dict.fromkeys(["serving_default", "n_best"])
    card = SimpleNamespace(splitter=Splitter("en", "de"), terms=False)

    def run(self, signature, rows):
        texts = [text for (text,) in rows]
        self.batches.append(texts)
        found = np.array([t[:7].upper() for t in texts], object)
        scores = np.zeros(len(texts))
        # The second is written as the first, the third does not exist.
        others = np.stack([found, found, found], axis=1)
        return {
            "translation": found,
            "score": scores,
            "translations": others,
            "scores": np.stack([scores, scores - 1, scores - np.inf], axis=1),
            "truncated": np.array([len(text) > 7 for text in texts]),
        }


def a_job(model=None, **limits):
    batcher = Batcher(Batching(3, batch_timeout_micros=0))
    job = Job(Service("name", None, batcher, Limits(**limits)), None)
    job.is_long, job.model = True, model or ShortModel()
    return job


async def translate(*texts, model=None, **limits):
    job = a_job(model, **limits)
    return list(map(job.join, texts, await job.search(texts)))


async def test_nothing_goes_through_the_model_twice():
    model = ShortModel()
    assert await translate("Yes. No.", "", model=model) == ["YES. NO.", ""]
    assert sorted(model.texts) == [b"No.", b"Yes."]
    model.batches.clear()
    text, searched = "Yes. wooden box", [b"Yes.", b"box", b"wooden"]
    assert await translate(text, model=model) == ["YES. WOODEN BOX"]
    assert sorted(model.texts) == [*searched, b"wooden box"]
    # Nor do alternatives take a second search.
    model.batches.clear()
    (parts,) = await a_job(model).search([text], count=3)
    assert [part.hypotheses for part in parts] == [
        [(text, 0.0)] for text in ("YES.", "WOODEN", "BOX")
    ]
    assert sorted(model.texts) == [*searched, b"wooden box"]


async def test_a_text_of_too_many_sentences_is_refused_before_all_are_found(
    monkeypatch,
):
    seen = []

    def endless(self, text):
        for number in itertools.count():
            seen.append(number)
            yield Span(number, number + 1)

    monkeypatch.setattr(Splitter, "spans", endless)
    with pytest.raises(RefusalError, match="exceeds text limit .5."):
        await translate("x", max_texts=5)
    assert len(seen) == 6


async def test_what_the_model_would_cut_is_halved_until_nothing_is_lost():
    text = "a wooden box of many words. So.\n\nbreathtakingly"
    expected = "A WOODEN BOX OF MANY WORDS. SO.\n\nBREATHT AKINGLY"
    assert await translate(text) == [expected]


@pytest.mark.parametrize("source_lang", ["de", "zh"])
async def test_words_are_linked_behind_the_tag_with_which_they_were_searched(
    source_lang,
):
    model, asked = WordByWord(), []
    model.card = dataclasses.replace(CARD, source_lang=source_lang)
    run = model.run
    model.run = lambda name, rows: asked.append((name, rows)) or run(name, rows)
    job = a_job(model)
    (sentences,) = await job.search([">>fra<< 狗 猫。\n鸟 鱼"])
    await job.link(sentences)
    rows = itertools.chain(*(x for name, x in asked if name == "attention"))
    assert {tuple(text.decode() for text in row) for row in rows} == {
        (">>fra<< 狗 猫。", "猫。 狗 >>fra<<"),
        (">>fra<< 鸟 鱼", "鱼 鸟 >>fra<<"),
    }
    # The tag has written its own copy, which is linked to no word.
    assert [x.links for x in sentences] == [[(1, 0), (0, 1)]] * 2


async def test_code_in_html_is_marked_where_the_model_knows_marks():
    class Marking(WordByWord):
        """Writes what it reads, marks as what they enclose."""

        card = dataclasses.replace(CARD, terms=True)
        texts = []

        def run(self, signature, rows):
            self.texts += [row[0].decode() for row in rows]
            if signature == "attention":
                return super().run(signature, rows)
            plain = [re.sub(MARK, r"\1", row[0].decode()) for row in rows]
            return super().run(signature, [(x.encode(),) for x in plain])

    page = "Der <b>Hund</b> <code>x y</code> kostet <kbd>z</kbd>."
    model = Marking()
    (found,) = await translate_html(a_job(model), [page])
    code = "<code>x y</code>"
    assert found == [f"<kbd>z</kbd>. costs {code} <b>dog</b> Der"]
    assert model.texts == [
        "Der Hund <term>{KT0}<as></term> kostet <term>{KT1}<as></term>.",
        # The links are those of the symbols.
        "Der Hund <kept0> kostet <kept1>.",
    ]


async def test_the_tag_of_an_html_document_goes_before_each_of_its_blocks():
    model = ShortModel()
    page = "<p>&gt;&gt;x&lt;&lt; <b>a</b></p><p>b</p>"
    await translate_html(a_job(model), [page, "<i>c</i>"])
    assert sorted(model.texts) == [b">>x<< a", b">>x<< b", b"c"]
