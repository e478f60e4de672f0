"""What is known of a language, against Unicode's data, sacreBLEU and Babel.

Its words stand between spaces, or are what ICU or one's eyes find.
"""

import sys
import unicodedata

import pytest
from babel import Locale, localedata
from babel.core import get_global
from sacrebleu.metrics import BLEU

from keras_transformer.config import UserError
from keras_transformer.data import languages
from keras_transformer.data.languages import language_of, words_of


@pytest.mark.parametrize(
    "codes, code, script",
    [
        (["de", "DE", "deu", "ger"], "de", "Latn"),
        (["de-DE", "de_DE", "deu_de"], "de-DE", "Latn"),
        (["zh", "zho", "cmn"], "zh", "Hans"),
        (["zh_Hant", "ZH-hant", "zt"], "zh-Hant", "Hant"),
        (["zh-TW"], "zh-TW", "Hant"),
        (["iw", "he"], "he", "Hebr"),
        (["sr-Latn", "sh", "sr@latin"], "sr-Latn", "Latn"),
        (["sr_RS@latin", "sr-Latn-RS"], "sr-Latn-RS", "Latn"),
        (["uz@cyrillic"], "uz-Cyrl", "Cyrl"),
        (["ca@valencia", "ca_valencia"], "ca-valencia", "Latn"),
        (["jp", "jap", "jpn", "JP"], "ja", "Jpan"),
        (["cn", "CN"], "zh", "Hans"),
        (["xx"], "xx", ""),
    ],
)
def test_a_code_is_understood_in_any_spelling(codes, code, script):
    for spelling in codes:
        found = language_of(spelling)
        assert (found.code, found.script) == (code, script)
        assert found.base == code.split("-")[0]


@pytest.mark.parametrize(
    "code", ["jp", "cn", "kh", "vn", "cz", "gr", "ua", "dk"]
)
def test_a_country_stands_for_its_language_if_no_language_has_the_code(code):
    # CLDR's likely language of the country, and its locales.
    likely = get_global("likely_subtags")[f"und_{code.upper()}"]
    assert language_of(code).base == likely.split("_")[0]
    assert code not in localedata.locale_identifiers()
    assert code not in get_global("language_aliases")


def test_an_unknown_language_is_told_once_unless_its_script_is_given(caplog):
    for code in ("xq", "xq", "xq-Jpan", "tree", "de"):
        language_of(code)
    (said,) = caplog.messages
    assert "language xq," in said
    assert not language_of("xq-Jpan").has_spaces


@pytest.mark.parametrize("code", ["", "a/b", "..", ".", "de ", "de-", "-de", 7])
def test_what_is_no_code_is_one_sentence(code):
    with pytest.raises(UserError, match="code of a language"):
        language_of(code)


@pytest.mark.parametrize(
    "one, other, same",
    [
        ("de", "de_AT", True),
        ("zh", "zt", False),
        ("zh_TW", "zt", True),
        ("no", "nb", True),
        ("sr", "sr-Latn", False),
    ],
)
def test_languages_are_the_same_in_one_script(one, other, same):
    assert language_of(one).is_same(language_of(other)) is same


def test_directions_are_those_of_all_of_babels_languages():
    for name in localedata.locale_identifiers():
        if any(len(part) < 4 for part in name.split("_")[1:]):
            continue  # A territory decides no direction.
        expected = Locale.parse(name).text_direction
        if expected == "ttb":  # Columns, whose `dir` in HTML is ltr.
            expected = "ltr"
        assert language_of(name).direction == expected, name


def test_scripts_without_spaces_are_known_by_a_sentence_of_each():
    # From the Universal Declaration of Human Rights, article 1: its beginning.
    sentences = {
        "zh": "人人生而自由在尊严和权利上一律平等",
        "ja": "すべての人間は生まれながらにして自由であり",
        "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
        "km": "មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាព",
        "ko": "모든 인간은 태어날 때부터 자유로우며",
        "fa": "تمام افراد بشر آزاد به دنیا می‌آیند",
        "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में",
        "am": "የሰው ልጅ ሁሉ ሲወለድ ነጻና",
    }
    for code, sentence in sentences.items():
        spaces = {unicodedata.category(letter) for letter in sentence} & {"Zs"}
        assert language_of(code).has_spaces is bool(spaces), code


@pytest.mark.parametrize(
    "code, tokenizer",
    [
        *[("ja", "ja-mecab"), ("ko", "ko-mecab"), ("ko-KR", "ko-mecab")],
        *[("zh_TW", "zh"), ("yue", "zh"), ("th", "char"), ("my", "char")],
        *[("ja-Latn", "13a"), ("ko-Latn", "13a"), ("ja-Hira", "ja-mecab")],
        *[("bo", "char"), ("de", "13a"), ("fa", "13a"), ("xx", "13a")],
    ],
)
def test_bleu_is_tokenised_as_sacrebleu_has_it(code, tokenizer):
    found = language_of(code).bleu_tokenizer
    assert found == tokenizer
    assert found in BLEU.TOKENIZERS
    # What sacreBLEU would take for the language itself, where it knows it.
    if code in BLEU._TOKENIZER_MAP:
        assert found == BLEU._TOKENIZER_MAP[code]


def parts(text, language):
    return [text[slice(*place)] for place in words_of(text, language)]


# Cut by hand, as dictionaries have the words.
@pytest.mark.parametrize(
    ("language", "cut"),
    [
        ("zh", "我|喜欢|学习|自然|语言|处理|。"),
        ("zh-Hant", "我|喜歡|😀|天氣"),
        ("ja", "吾輩|は|猫|で|ある|。"),
        ("th", "ผม|รัก|ภาษา|ไทย"),
        ("lo", "ພາສາ|ລາວ"),
        ("zh", "3.5|元|GPU"),
    ],
)
def test_words_without_spaces_are_those_of_dictionaries(language, cut):
    assert parts(cut.replace("|", ""), language) == cut.split("|")
    # And space is no word.
    assert parts(f" {cut.replace('|', ' ')} ", language) == cut.split("|")


@pytest.mark.parametrize("language", ["en", "de", "fa", "ko", "hi"])
def test_other_words_stand_between_white_space(language):
    text = " It's 3.5\u00a0€,\tisn’t it?\n ก猫 "
    assert parts(text, language) == text.split()


def test_without_icu_words_are_characters_with_their_marks(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "icu4py", None)
    languages._icu.cache_clear()
    assert parts("ที่นี่ é猫", "th") == ["ที่", "นี่", "é", "猫"]
    assert parts("猫と", "ja") == ["猫", "と"]
    languages._icu.cache_clear()
    (record,) = caplog.records
    assert "words" in record.getMessage()


def test_what_shows_nothing_is_no_word():
    text = "\u200b a\u0301 \u034f\u200c b"
    assert parts(text, "en") == ["a\u0301", "b"]
