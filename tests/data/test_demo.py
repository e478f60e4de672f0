"""The built-in corpus: right, reproducible, and fair to test on."""

import os
import pathlib
import re
import subprocess
import sys
import unicodedata

import pytest

from keras_transformer.data.demo import EXAMPLES, demo_pairs

SPLITS = ("train", "val", "test")
REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pairs():
    return {split: demo_pairs(split, "en", "de") for split in SPLITS}


@pytest.fixture(scope="module")
def german(pairs):
    """All pairs as English to German."""
    return dict(pair for split in SPLITS for pair in pairs[split])


def test_the_splits_have_their_sizes(pairs):
    sizes = {split: len(pairs[split]) for split in SPLITS}
    assert sizes == {"train": 20_000, "val": 500, "test": 500}


@pytest.mark.parametrize("side", [0, 1])
def test_no_text_comes_twice_in_any_split(pairs, side):
    texts = [pair[side] for split in SPLITS for pair in pairs[split]]
    assert len(set(texts)) == 21_000


def test_the_other_direction_has_the_same_pairs_turned(pairs):
    turned = [
        (english, german) for german, english in demo_pairs("val", "de", "en")
    ]
    assert turned == pairs["val"]


def test_the_examples_are_pairs_that_no_model_is_trained_on(pairs):
    english, german = EXAMPLES["en"], EXAMPLES["de"]
    assert len(english) == len(german) == 5
    assert set(zip(english, german, strict=True)) <= set(pairs["test"])


def test_another_process_generates_the_same(pairs):
    code = (
        "from keras_transformer.data.demo import demo_pairs;"
        "print(demo_pairs('test', 'en', 'de'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        # Hashes of strings differ between processes.
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert result.stdout.strip() == str(pairs["test"])


def test_text_is_as_the_tokenizer_gives_it_back(pairs):
    for split in SPLITS:
        for text in (text for pair in pairs[split] for text in pair):
            normal = unicodedata.normalize("NFKC", text)
            assert " ".join(normal.split()) == text


# Spelled by hand, not by num2words.
ENGLISH_DIGITS = dict(
    zip(
        "zero one two three four five six seven eight nine".split(),
        "null eins zwei drei vier fünf sechs sieben acht neun".split(),
        strict=True,
    )
)


def test_the_ten_digits_are_translated(german):
    known = {text: german[text] for text in ENGLISH_DIGITS if text in german}
    assert len(known) >= 9
    for english, word in known.items():
        assert word == ENGLISH_DIGITS[english]


def test_german_says_the_ones_before_the_tens(german):
    tens = {"twenty": "zwanzig", "thirty": "dreißig", "ninety": "neunzig"}
    found = 0
    for ten, zehner in tens.items():
        for digit, ziffer in ENGLISH_DIGITS.items():
            if (english := f"{ten}-{digit}") in german:
                ones = ziffer.removesuffix("s") if digit == "one" else ziffer
                assert german[english] == f"{ones}und{zehner}"
                found += 1
    assert found >= 15


def test_no_german_number_has_the_s_that_num2words_puts_before_thousand(
    german,
):
    assert not [text for text in german.values() if "einstausend" in text]


def test_hours_after_noon_count_on_in_german(german):
    found = 0
    for english, text in german.items():
        if not (clock := re.search(r"(\d+):(\d\d) ([AP]M)", english)):
            continue
        hour = int(clock[1]) % 12 + (12 if clock[3] == "PM" else 0)
        assert f" {hour}:{clock[2]} Uhr." in text
        found += 1
    assert found > 1000


def test_prices_have_a_decimal_comma_in_german(german):
    found = 0
    for english, text in german.items():
        if not (price := re.search(r"costs ([€$£])([\d.]+)\.$", english)):
            continue
        digits = price[2].replace(".", ",")
        assert text.endswith(f" kostet {digits} {price[1]}.")
        found += 1
    assert found > 500


def test_weekdays_are_translated(german):
    days = {
        "Monday": "Montag",
        "Tuesday": "Dienstag",
        "Wednesday": "Mittwoch",
        "Thursday": "Donnerstag",
        "Friday": "Freitag",
        "Saturday": "Samstag",
        "Sunday": "Sonntag",
    }
    found = 0
    for english, text in german.items():
        if (day := english.partition(",")[0]) in days:
            assert text.startswith(f"{days[day]}, ")
            found += 1
    assert found > 3000


@pytest.mark.parametrize(
    ("example", "counterpart"),
    [
        (r"one (euro|dollar) and", r"ein (Euro|Dollar) und"),
        (r"hundred and one (euros|dollars)", r"hundertein (Euro|Dollar) und"),
        (r"\btwenty-one (euros|dollars)", r"einundzwanzig (Euro|Dollar) und"),
    ],
)
def test_one_has_its_form_before_a_currency(german, example, counterpart):
    texts = [german[text] for text in german if re.search(example, text)]
    assert texts
    for text in texts:
        assert re.search(counterpart, text)
