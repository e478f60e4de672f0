"""Marks of terms in texts, written by hand."""

import math
import re
import types

import pytest
import sample_runs
import tensorflow as tf

from keras_transformer.config import Sampling, Search, UserError
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.translation import terms
from keras_transformer.translation.terms import Terms
from keras_transformer.translation.text_batches import texts_of, with_choice


def mark(text, glossary=None, source_lang="en"):
    return Terms(glossary or {}, source_lang).mark(text)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("a lamp is", "a <term>lamp<as>Leuchte</term> is"),
        ("Lamp is", "<term>Lamp<as>Leuchte</term> is"),
        ("(lamp)", "(<term>lamp<as>Leuchte</term>)"),
        ("two lamps, lampshade", "two lamps, lampshade"),
        ("a traffic light", "a <term>traffic light<as>Ampel</term>"),
        ("a light", "a <term>light<as>Licht</term>"),
        ("the US and us", "the <term>US<as>USA</term> and us"),
        ("Sam’s lamp", "<term>Sam<as></term>’s <term>lamp<as>Leuchte</term>"),
    ],
)
def test_a_glossary_marks_whole_words_and_the_longest_term(text, marked):
    glossary = {"lamp": "Leuchte", "light": "Licht", "traffic light": "Ampel"}
    assert mark(text, glossary | {"US": "USA", "Sam": ""}) == marked


@pytest.mark.parametrize(
    ("language", "term", "text", "marked"),
    [
        ("en", "O'Brien", "Mr O’Brien.", "Mr <O’Brien>."),
        ("en", "O’Brien", "O'Brien", "<O'Brien>"),
        ("en", "New York", "New\xa0York", "<New\xa0York>"),
        ("en", "New York", "in  New  York  now", "in  <New  York>  now"),
        ("en", "naïve", "a nai\u0308ve man", "a <nai\u0308ve> man"),
        ("en", "nai\u0308ve", "a Naïve man", "a <Naïve> man"),
        ("en", "naïve", "a naive man", "a naive man"),
        ("en", "lampshade", "lamp\xadshade", "<lamp\xadshade>"),
        ("en", "lamp", "lamp\xadshade", "lamp\xadshade"),
        ("en", "co-op", "a co\u2011op", "a <co\u2011op>"),
        ("en", "ABC", "ＡＢＣ abc", "<ＡＢＣ> abc"),
        ("en", "Sony", "Sony™", "<Sony>™"),
        ("en", "№", "No 5, № 6", "No 5, <№> 6"),
        ("en", "x²", "x2 x²", "x2 <x²>"),
        ("fa", "می", "می\u200cروم", "می\u200cروم"),
        ("en", "new york", "new\nyork", "new\nyork"),
        ("ru", "Елка", "Ёлка елка", "Ёлка елка"),
        ("tr", "istanbul", "İstanbul", "<İstanbul>"),
        ("tr", "ışık", "Işık IŞIK", "<Işık> <IŞIK>"),
        ("tr", "ilk", "Ilk", "Ilk"),
        ("de", "straße", "STRASSE", "<STRASSE>"),
        ("de", "in maßen", "in Massen", "in Massen"),
        ("el", "οδός", "ΟΔΌΣ", "<ΟΔΌΣ>"),
        # か゛ is が, of which か is no part.
        ("ja", "か", "が", "が"),
        ("ja", "ガス", "ｶﾞｽ", "<ｶﾞｽ>"),
        # "Less" and "lack": the vowel sign belongs to its word.
        ("hi", "कम", "कमी कम", "कमी <कम>"),
        # Terms in languages without spaces may go beyond a border of ICU's.
        ("ja", "電気", "電気は。電気", "<電気>は。<電気>"),
        # 京都 is no word of 東京都, nor 人 of 大人, nor はし of はした.
        ("ja", "京都", "東京都と京都", "東京都と<京都>"),
        ("ja", "人", "大人の人", "大人の<人>"),
        ("ja", "はし", "私はした", "私はした"),
        # ICU has 工|人们, and เฟ|ซบุ๊ก as two words.
        ("zh", "工人", "工人们和工人", "<工人>们和<工人>"),
        ("th", "เฟซบุ๊ก", "เล่นเฟซบุ๊กทุกวัน", "เล่น<เฟซบุ๊ก>ทุกวัน"),
        ("th", "มา", "มาก", "มาก"),
        # 1st of 10th, and letters of scripts with spaces.
        ("ja", "第1", "第10回", "第10回"),
        ("ja", "USB port", "USB portsとUSB port", "USB portsと<USB port>"),
    ],
)
def test_a_term_is_found_however_its_words_are_written(
    language, term, text, marked
):
    found = mark(text, {term: "x"}, language)
    assert found == re.sub("<(.*?)>", r"<term>\1<as>x</term>", marked)


def test_of_terms_that_look_alike_the_one_as_written_counts():
    glossary = {"O’B": "1", "O'B": "2"}
    assert mark("O'B O’B", glossary) == (
        "<term>O'B<as>2</term> <term>O’B<as>1</term>"
    )


@pytest.mark.parametrize(
    "kept",
    [
        *("https://a.org/b_(c)/d?e=1&f=2#g", "www.b.org", "c.d+e@f.co.jp"),
        *("http://a.de/x", "http://a.de/Müller", "müller@b.de"),
        *("{name}", "${name}", "{{ name }}", "$name", "%s", "%1$s", "%.2f"),
        *("%(count)d", '<x id="1"/>', '<ph name="a">', "<br/>", "`rm -r .`"),
    ],
)
def test_addresses_placeholders_and_code_stay_as_they_are(kept):
    assert mark(f"See {kept}, now.") == f"See <term>{kept}<as></term>, now."
    assert mark(f"見る{kept}です", None, "ja") == (
        f"見る<term>{kept}<as></term>です"
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://a.de/xを見る", "https://a.de/x"),
        ("访问http://a.cn/了解更多", "http://a.cn/"),
        ("https://ja.wikipedia.org/wiki/東京/歴史 を", "{}東京/歴史"),
        ("https://ja.wikipedia.org/wiki/東京、次", "{}東京"),
        ("https://a.de/?q=東京&x=1。", "https://a.de/?q=東京&x=1"),
        ("https://a.de/x#歴史」", "https://a.de/x#歴史"),
        ("https://例え.jp/xを見る", "https://例え.jp/x"),
    ],
)
def test_other_letters_are_in_an_address_where_a_name_begins(text, address):
    address = address.format("https://ja.wikipedia.org/wiki/")
    whole = f"<term>{address}<as></term>"
    assert mark(text, {}, "ja") == text.replace(address, whole)


@pytest.mark.parametrize(
    "text",
    [
        *("<bt> a", "x <y and z> w", "it`s that`s", "50% sure", "100%d"),
        *("$5 and 5$", "5 < 6 > 4", "a@b", "{ a b", "it`s", "http://", ""),
    ],
)
def test_prose_has_no_marks(text):
    assert mark(text) == text


def test_whole_marks_of_a_text_stay_and_other_symbols_are_text():
    whole = "a <term>b<as>c</term> d"
    assert mark(whole, {"b": "x"}) == whole
    assert (
        mark("<term> a </term> <as> <kept0>")
        == "< term> a < /term> < as> < kept0>"
    )


@pytest.mark.parametrize(
    "glossary",
    [
        *({"a": None}, {1: "b"}, ["a"], "a", {"a": "<term>"}, {"a": "b\0"}),
        *({"a": "\ud800"}, {"a" * 101: "b"}),
    ],
)
def test_what_is_no_glossary_is_refused(glossary):
    with pytest.raises(UserError):
        mark("a", glossary)


def test_a_file_has_a_term_on_each_line_quoted_as_spreadsheets_do(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text(
        'name\t\n\n"lamp"\t"Leuchte"\n5" disk\tx\n"a ""b"" c"\t""\n"a" b\t"c\n',
        "utf-8",
    )
    assert terms.read(path) == {
        "name": "",
        "lamp": "Leuchte",
        '5" disk': "x",
        'a "b" c': "",
        '"a" b': '"c',
    }


@pytest.mark.parametrize("line", ["lamp", "lamp\tb\tc", "\tLeuchte"])
def test_a_line_that_is_no_term_is_named(tmp_path, line):
    path = tmp_path / "terms.tsv"
    path.write_text(f"one\ttwo\n{line}\n", "utf-8")
    with pytest.raises(UserError, match=f"line 2 of {path}"):
        terms.read(path)


def test_a_model_that_never_met_marks_refuses_terms():
    translator = sample_runs.digit_translator()
    with pytest.raises(UserError, match="@terms"):
        translator.translate(["one"], terms={"one": "elf"})
    assert translator.translate(["one"], terms={}) == ["eins"]


def ranked(search, spelled, scores):
    """Put the hypotheses of a source with a mark for {x} in their order."""
    vocabulary = types.SimpleNamespace(
        has_marks=True, detokenize=lambda ids: tf.constant([spelled])
    )
    search = with_choice(vocabulary, search)
    result = BeamResult(None, tf.constant([scores]), None)
    source = ["one <term>{x}<as></term>"]
    texts, scores = texts_of(vocabulary, result, search, source)
    return [x.decode() for x in texts.numpy()[0]], scores.numpy()[0].tolist()


def test_a_translation_that_does_what_marks_want_comes_first():
    spelled = ["a", "a <kept0> <kept0>", "a <kept0>", "a <kept0>", ""]
    scores = [-1.0, -2.0, -3.0, -4.0, -math.inf]
    texts, scores = ranked(Search(beam_size=5), spelled, scores)
    assert texts[:3] == ["a {x}", "a", "a {x} {x}"]
    assert scores[:3] == [-3, -1, -2]


def test_draws_stay_in_their_order():
    search = Search(n_best=2, sampling=Sampling())
    texts, _ = ranked(search, ["a", "<kept0>"], [-1.0, -2.0])
    assert texts == ["a", "{x}"]
