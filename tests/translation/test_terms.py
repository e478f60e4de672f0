"""Marks of terms in texts, written by hand."""

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


def test_a_vowel_sign_of_hindi_belongs_to_its_word():
    # कम and कमी: "less" and "lack".
    assert mark("कमी कम", {"कम": "less"}, "hi") == (
        "कमी <term>कम<as>less</term>"
    )


def test_words_without_spaces_are_those_of_icu():
    found = mark("電気は高いです。電気", {"電気": "power"}, "ja")
    assert found == (
        "<term>電気<as>power</term>は高いです。<term>電気<as>power</term>"
    )
    # 京都 is no word of 東京都.
    assert mark("東京都", {"京都": "Kyoto"}, "ja") == "東京都"


@pytest.mark.parametrize(
    "kept",
    [
        "https://a.org/b_(c)/d?e=1&f=2#g",
        "http://münchen.de"[:8] + "a.de/x",
        "www.b.org",
        "c.d+e@f.co.jp",
        "{name}",
        "${name}",
        "{{ name }}",
        "$name",
        "%s",
        "%1$s",
        "%(count)d",
        "%.2f",
        '<x id="1"/>',
        '<ph name="a">',
        "<br/>",
        "http://a.de/Müller",
        "müller@b.de",
        "`rm -r .`",
    ],
)
def test_addresses_placeholders_and_code_stay_as_they_are(kept):
    assert mark(f"See {kept}, now.") == f"See <term>{kept}<as></term>, now."
    assert mark(f"見る{kept}です", None, "ja") == (
        f"見る<term>{kept}<as></term>です"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<bt> a",
        "x <y and z> w",
        "it`s that`s",
        "50% sure",
        "100%d",
        "$5 and 5$",
        "5 < 6 > 4",
        "a@b",
        "{ a b",
        "it`s",
        "",
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
        {"a": None},
        {1: "b"},
        ["a"],
        "a",
        {"a": "<term>"},
        {"a": "b\0"},
        {"a": "\ud800"},
        {"a" * 101: "b"},
    ],
)
def test_what_is_no_glossary_is_refused(glossary):
    with pytest.raises(UserError):
        mark("a", glossary)


def test_a_file_has_a_term_on_each_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("lamp\tLeuchte\n\nname\t\n", "utf-8")
    assert terms.read(path) == {"lamp": "Leuchte", "name": ""}


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


@pytest.mark.parametrize(
    ("n_best", "first"), [(1, ["a {x}"]), (3, ["a {x}", "a", "a {x} {x}"])]
)
def test_a_translation_that_does_what_marks_want_comes_first(n_best, first):
    search = Search(beam_size=5, n_best=n_best)
    spelled = ["a", "a <kept0> <kept0>", "a <kept0>", "a <kept0>", ""]
    vocabulary = types.SimpleNamespace(
        has_marks=True, detokenize=lambda ids: tf.constant([spelled])
    )
    assert with_choice(vocabulary, search).n_best == 5
    scores = tf.constant([[-1.0, -2.0, -3.0, -4.0, -float("inf")]])
    result = BeamResult(tf.zeros([1, 5, 2]), scores, tf.ones([1, 5]))
    source = ["one <term>{x}<as></term>"]
    texts, scores = texts_of(vocabulary, result, search, source)
    assert [x.decode() for x in texts.numpy()[0]] == first
    assert scores.numpy()[0].tolist() == [-3, -1, -2][:n_best]


def test_draws_stay_in_their_order():
    search = Search(n_best=2, sampling=Sampling())
    vocabulary = types.SimpleNamespace(
        has_marks=True, detokenize=lambda ids: tf.constant([["a", "<kept0>"]])
    )
    assert with_choice(vocabulary, search) is search
    result = BeamResult(tf.zeros([1, 2, 2]), tf.zeros([1, 2]), tf.ones([1, 2]))
    source = ["<term>{x}<as></term>"]
    texts, _ = texts_of(vocabulary, result, search, source)
    assert texts.numpy().tolist() == [[b"a", b"{x}"]]
