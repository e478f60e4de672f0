"""Text comes out of a vocabulary as it went in, composed and in single spaces.

The graph, sentencepiece and the bulk tokenizer agree, in every writing system.
"""

import datetime
import re
import unicodedata

import babel
import pytest
import sentencepiece
import tensorflow as tf
from babel import dates, localedata, numbers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from natural_corpus import same_ids

from keras_transformer.data import sentencepiece_file
from keras_transformer.data.tokenizer import Tokenizer

SPACES = re.compile(
    "[\t-\r \x85\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f]+"
)
GONE = re.compile("[\1-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")


def composed(text):
    text = GONE.sub("", unicodedata.normalize("NFC", text))
    return SPACES.sub(" ", text).strip(" ")


def lines_of(code):
    """Write dates, amounts and names as a locale does."""
    locale = babel.Locale.parse(code)
    day = datetime.datetime(2031, 7, 13, 17, 5)
    return [
        dates.format_datetime(day, "full", locale=locale, tzinfo=dates.UTC),
        numbers.format_currency(-12345.67, "EUR", locale=locale),
        numbers.format_percent(0.113, locale=locale),
        " ".join(str(name) for name in list(locale.languages.values())[:29]),
    ]


@pytest.fixture(scope="module")
def lines():
    # Those with a country mostly repeat their language.
    codes = [x for x in localedata.locale_identifiers() if "_" not in x]
    assert len(codes) > 300
    return [line for code in codes for line in lines_of(code)]


@pytest.fixture(scope="module")
def tokenizer(lines, tmp_path_factory):
    path = tmp_path_factory.mktemp("normal") / "tokenizer.model"
    return Tokenizer.train(lines[::3], 4001, path).target


def out_of(tokenizer, texts):
    """Return the texts out of the graph; all three ways give the same ids."""
    ids = same_ids(tokenizer, texts)
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    expected = [[*row, tokenizer.eos_id] for row in library.encode(texts)]
    assert ids == expected
    found = tokenizer.detokenize(tf.ragged.constant(ids))
    return [x.decode() for x in found.numpy()]


def test_lines_of_every_language_come_out_as_they_went_in(tokenizer, lines):
    assert sentencepiece_file.are_independent(tokenizer.model)
    assert out_of(tokenizer, lines) == [composed(line) for line in lines]
    apart = [unicodedata.normalize("NFD", line) for line in lines]
    assert out_of(tokenizer, apart) == [composed(line) for line in lines]


@pytest.mark.parametrize(
    "text",
    [
        "你好，世界！",
        "น้ำทำ",  # U+0E33
        "می\u200cخواهم",
        "5 m² ½ № 10 ℃ … ﬁ Ⅷ ｱ ～ ﷺ",
        "\u200f-۱۲٬۳۴۵٫۶۷\u00a0€\u200e",
        "12\u202f345 \u00a0x\u2007y\u3000z\u2060\u00ad\u200b",
        "re\ufffdplaced a\0b",
        "👩\u200d🚀 🇩🇪 👍🏽 ❤\ufe0f",
        "שּׁ בְּרֵאשִׁית".replace("שּׁ", "\u05e9\u05bc\u05c1"),
        "▁under▁▁ ▁score▁",
        # Singletons, of Japanese names among them.
        "\ufa19\ufa46 \u212b \u2126",
    ],
)
def test_a_text_stays_as_it_is(tokenizer, text):
    assert out_of(tokenizer, [text]) == [text]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("  two \t spaces\n", "two spaces"),
        ("line\u2028end\rhere\x85there\u2003\u2009x", "line end here there x"),
        ("\ufeffmark\ufeff, \x07bell \x07 \x9f.", "mark, bell ."),
        ("e\u0302\u0323 e\u0323\u0302 \u1eb9\u0302 \xea\u0323", "ệ ệ ệ ệ"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af \ud558\u11ab", "한글 한"),
        ("\u0958", "\u0915\u093c"),
        # Shadda before fatha, and a Hebrew vowel after two other points.
        ("\u0628\u0651\u064e", "\u0628\u064e\u0651"),
        ("\u05e9\u05c1\u05bc\u05b8", "\u05e9\u05b8\u05bc\u05c1"),
    ],
)
def test_what_changes_is_as_documented(tokenizer, text, expected):
    assert out_of(tokenizer, [text]) == [expected]


def test_every_canonical_spelling_becomes_the_character(tokenizer):
    characters = [
        character
        for character in map(chr, range(0x30000))
        if unicodedata.normalize("NFD", character) != character
        and not 0xAC00 <= ord(character) < 0xD7A4 - 97  # Some Hangul will do.
    ]
    assert len(characters) > 2000
    for form in ("NFC", "NFD"):
        texts = [unicodedata.normalize(form, x) for x in characters]
        assert out_of(tokenizer, texts) == [composed(x) for x in characters]


@given(
    st.lists(
        st.text(
            # Without the noncharacter that stands for "▁" meanwhile.
            st.characters(codec="utf-8", exclude_characters="\ufdd0")
            | st.characters(codec="utf-8", categories=["Mn", "Mc", "Cf"])
            | st.sampled_from("a\u0301\u0323e\u0302 \u1100\u1161\u11a8\0\x07▁"),
            max_size=23,
        ),
        min_size=1,
        max_size=7,
    )
)
@example(["a\x07\u0301 b"])
@example(["\0"])
@settings(max_examples=60)
def test_any_text_stays_canonically_equivalent(tokenizer, texts):
    texts = [f"{text} a" for text in texts]  # Not of invisible ones alone.
    for text, found in zip(texts, out_of(tokenizer, texts), strict=True):
        assert unicodedata.normalize("NFC", found) == unicodedata.normalize(
            "NFC", composed(text)
        )
