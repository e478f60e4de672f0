"""The built-in corpus: right, reproducible, and fair to test on."""

import hashlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import unicodedata

import pytest
from sample_runs import ENGLISH, GERMAN

from keras_transformer.config import UserError
from keras_transformer.data.demo import EXAMPLES, Demo, demo_pairs

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


def test_the_text_is_that_of_all_quoted_figures(pairs):
    digests = {
        split: hashlib.blake2b(
            json.dumps(pairs[split]).encode(), digest_size=8
        ).hexdigest()
        for split in SPLITS
    }
    assert digests == {
        "train": "78f69a89fc5ab2ac",
        "val": "30ae8c360bc4981b",
        "test": "ea55682661b15838",
    }


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
DIGITS = dict(zip(ENGLISH, GERMAN, strict=True))
DAYS = {
    "Monday": "Montag",
    "Tuesday": "Dienstag",
    "Wednesday": "Mittwoch",
    "Thursday": "Donnerstag",
    "Friday": "Freitag",
    "Saturday": "Samstag",
    "Sunday": "Sonntag",
}
TENS = {"twenty": "zwanzig", "thirty": "dreißig", "ninety": "neunzig"}


def of_digits():
    yield from DIGITS.items()


def of_two_digits():
    """German says the ones before the tens."""
    for (ten, zehner), (digit, ziffer) in itertools.product(
        TENS.items(), DIGITS.items()
    ):
        ones = "ein" if digit == "one" else ziffer
        yield f"{ten}-{digit}", f"{ones}und{zehner}"


@pytest.mark.parametrize("words, least", [(of_digits, 9), (of_two_digits, 15)])
def test_numbers_are_translated(german, words, least):
    expected = {english: text for english, text in words() if english in german}
    assert len(expected) >= least
    assert {english: german[english] for english in expected} == expected
    # As num2words has it.
    assert not [text for text in german.values() if "einstausend" in text]


def in_24_hours(clock):
    hour = int(clock[1]) % 12 + (12 if clock[3] == "PM" else 0)
    return f" {hour}:{clock[2]} Uhr."


@pytest.mark.parametrize(
    "english, counterpart, least",
    [
        (r"(\d+):(\d\d) ([AP]M)", in_24_hours, 1000),
        (
            r"costs ([€$£])([\d.]+)\.$",
            lambda price: f" kostet {price[2].replace('.', ',')} {price[1]}.",
            500,
        ),
        (r"^(\w+day),", lambda day: f"{DAYS[day[1]]}, ", 3000),
    ],
)
def test_times_prices_and_weekdays_are_translated(
    german, english, counterpart, least
):
    found = 0
    for text, translation in german.items():
        if match := re.search(english, text):
            assert counterpart(match) in translation
            found += 1
    assert found > least


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


def test_a_language_without_names_of_days_is_refused():
    with pytest.raises(UserError, match="such as ar, de, en.* received tlh; "):
        Demo("en", "tlh")
