"""The built-in corpus in other languages than German."""

import datetime
import unicodedata

import pytest
from babel import localedata

import keras_transformer as kt
from keras_transformer.data.demo_numbers import Wording

LRM = "\N{LEFT-TO-RIGHT MARK}"
NO_BREAK, NARROW = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"
# What num2words has, by the codes of BCP 47: without Tetum, which Babel lacks,
# and Amharic, which ends at 1,000.
SPELLED = (
    "ar az be bn ca ce cs cy da de en eo es fa fi fr he hu id is it ja kk kn "
    "ko lt lv nb nl pl pt ro ru sk sl sr-Latn sv te tg th tr uk vi"
).split()


def wordings():
    """All that there are, by the names of Babel's locales."""
    found = {}
    for name in localedata.locale_identifiers():
        try:
            found[name] = Wording(name)
        except kt.UserError:
            pass
    return found


def written(wording):
    day = datetime.date(1996, 6, 3)
    return [
        wording.number(20_306),
        wording.date(day, "full"),
        wording.date(day, "long"),
        wording.amount(5.5, "EUR", "standard"),
        wording.amount(5.5, "EUR", "name"),
    ]


def assert_text(text):
    """One line in NFC, without controls, surrogates or private characters."""
    assert text and text == text.strip() and "  " not in text
    kinds = {unicodedata.category(letter) for letter in text}
    # Babel may know digits that this Python's Unicode has not assigned.
    assert not kinds & {"Cc", "Co", "Cs", "Zl", "Zp"}, ascii(text)
    # Among letters; compatibility characters stay as they are.
    assert unicodedata.is_normalized("NFC", text), ascii(text)


# By hand; the marks and spaces of amounts are those of CLDR's charts.
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ja", "二万三百六|1996年6月3日月曜日|1996年6月3日|€5.50|5.50ユーロ"),
        (
            "fa",
            "بیست هزار و سیصد و شش|دوشنبه 3 ژوئن 1996|3 ژوئن 1996|"
            f"{LRM}€{NO_BREAK}5.50|5.50 یورو",
        ),
        (
            "ru",
            f"двадцать тысяч триста шесть|понедельник, 3 июня 1996{NARROW}г.|"
            f"3 июня 1996{NARROW}г.|5,50{NO_BREAK}€|5,50 евро",
        ),
        # In digits, for num2words has neither.
        ("hi", "20,306|सोमवार, 3 जून 1996|3 जून 1996|€5.50|5.50 यूरो"),
    ],
)
def test_values_are_written_as_in_the_language(code, expected):
    assert "|".join(written(Wording(code))) == expected


def test_every_language_of_babel_has_lines_and_most_of_num2words_have_words():
    found = wordings()
    for wording in found.values():
        for text in written(wording)[1:]:
            assert_text(text)
    assert len({name.split("_")[0] for name in found}) > 250
    for code in SPELLED:
        number = Wording(code).number(20_306)
        assert not any(map(str.isdigit, number)), code


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("fil", "21"),  # Not Finnish.
        ("am", "21"),  # It would end at 1,000.
        ("sr", "21"),  # Not in Latin letters.
        ("sr_Latn", "dvadeset jedan"),
        ("nob", "tjueen"),
        ("kaz", "жиырма бір"),
        ("pt_br", "vinte e um"),
        ("es-419", "veintiuno"),
    ],
)
def test_no_number_is_in_another_language_or_script(code, number):
    assert Wording(code).number(21) == number


@pytest.mark.parametrize(("source", "target"), [("en", "fa"), ("ja", "ko")])
def test_splits_share_no_text_of_either_side(source, target):
    corpus = kt.open_corpus("demo", source, target)
    pairs = {split: list(corpus.pairs(split)) for split in corpus.splits}
    sizes = {split: len(pairs[split]) for split in pairs}
    assert sizes == {"train": 10_000, "val": 500, "test": 500}
    for side in (0, 1):
        texts = [pair[side] for of in pairs.values() for pair in of]
        assert len(set(texts)) == 11_000
        for text in texts:
            assert_text(text)
    # Each kind of phrase, in its share or so.
    digits = [any(x.isdigit() for x in source) for source, _ in pairs["test"]]
    assert 200 < sum(digits) < 400


@pytest.mark.parametrize("code", ["tlh", "ko-US", "wbp"])  # wbp: without names.
def test_an_unknown_language_is_one_sentence_that_names_some(code):
    with pytest.raises(kt.UserError, match=rf"hi, ja, ko, .* received {code};"):
        kt.open_corpus("demo", target_lang=code)
