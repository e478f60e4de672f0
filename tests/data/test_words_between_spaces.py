"""Words stand between spaces, or are what ICU or one's eyes find."""

import sys

import pytest

from keras_transformer.data import languages
from keras_transformer.data.languages import words_of


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
