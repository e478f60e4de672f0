"""The built-in corpus in any two languages: numbers, dates and amounts.

`num2words` spells the numbers where it has the language, some fifty of them;
in others they stand in digits. Dates and amounts are CLDR's, by Babel, with
every mark of direction and no-break space that it writes.
"""

import datetime
import functools
import itertools
import random
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal

import babel
from babel import dates, numbers

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of
from keras_transformer.data.texts import Pair
from keras_transformer.machine import extras

SPLIT_SIZES = {"train": 10_000, "val": 500, "test": 500}
SUBJECT = "numbers, dates and amounts"
SEED = 1
CURRENCIES = ("EUR", "USD", "GBP")
CENTS = (0, 0.5, 0.99)
# Codes of num2words that are not BCP 47's.
_SPELLED_AS = {"kk": "kz", "nb": "no"}


class Wording:
    """Writes values in a language, if Babel names its days and months."""

    def __init__(self, code: str) -> None:
        self.locale = _locale_of(code)
        self._spelled_as = _code_of_num2words(code, self.locale)

    def number(self, value: int) -> str:
        """Three hundred and two; or 302."""
        if self._spelled_as is None:
            return numbers.format_decimal(value, locale=self.locale)
        return _spell(value, self._spelled_as)

    def date(self, day: datetime.date, style: str) -> str:
        """Friday, May 3, 1996; or without weekday."""
        return dates.format_date(day, style, locale=self.locale)

    def amount(
        self, value: float, currency: str, style: Literal["standard", "name"]
    ) -> str:
        """€234.50; or 234.50 euros."""
        return numbers.format_currency(
            value, currency, locale=self.locale, format_type=style
        )


@functools.cache
def splits(source_lang: str, target_lang: str) -> Mapping[str, list[Pair]]:
    """Generate all splits, the same in every process.

    No text of either side occurs in two splits, or twice in one.
    """
    wordings = Wording(source_lang), Wording(target_lang)
    draw = random.Random(SEED)
    size = sum(SPLIT_SIZES.values())
    to_target: dict[str, str] = {}
    targets: set[str] = set()
    while len(to_target) < size:
        kind, *values = _value(draw)
        source, target = (
            getattr(wording, kind)(*values) for wording in wordings
        )
        if source not in to_target and target not in targets:
            to_target[source] = target
            targets.add(target)
    # Short numbers, of which there are few, come early.
    pairs = list(to_target.items())
    draw.shuffle(pairs)
    rest = iter(pairs)
    return {
        split: list(itertools.islice(rest, size))
        for split, size in SPLIT_SIZES.items()
    }


def _value(draw: random.Random) -> tuple:
    """Draw the name of a method of `Wording`, and its arguments."""
    kind = draw.choices(("number", "date", "amount"), weights=(5, 2, 3))[0]
    if kind == "number":
        # Above, num2words makes mistakes in several languages.
        return kind, draw.randrange(10 ** draw.randint(1, 5))
    if kind == "date":
        first = datetime.date(1900, 1, 1)
        last = datetime.date(2099, 12, 31)
        day = first + datetime.timedelta(draw.randint(0, (last - first).days))
        return kind, day, draw.choice(("full", "long"))
    price = draw.randrange(10 ** draw.randint(1, 4)) + draw.choice(CENTS)
    style = draw.choice(("standard", "name"))
    return kind, price, draw.choice(CURRENCIES), style


def _locale_of(code: str) -> babel.Locale:
    """Find a language's locale, with names of its own for days and months."""
    try:
        locale = babel.Locale.parse(language_of(code).code, sep="-")
        names, unnamed = map(_names, (locale, babel.Locale("root")))
    except (ValueError, babel.UnknownLocaleError):
        names = unnamed = set()
    if not names or names & unnamed:
        raise UserError(
            "Expected languages for the demo corpus whose days and months "
            "Babel names, such as ar, de, en, fa, hi, ja, ko, ru, th or zh, "
            f"received {code}; `pybabel --list-locales` lists all that it has."
        )
    return locale


def _names(locale: babel.Locale) -> set[str]:
    names = (locale.months, locale.days)
    return {name for of in names for name in of["format"]["wide"].values()}


def _code_of_num2words(code: str, locale: babel.Locale) -> str | None:
    """Find a language that num2words spells in the script of Babel's names."""
    converters = extras.needs("num2words", "demo").CONVERTER_CLASSES
    language = language_of(code)
    for wanted in (language.code.replace("-", "_"), language.base):
        found = _SPELLED_AS.get(wanted, wanted)
        if found in converters:
            break
    else:
        return None
    try:
        spelled = _spell(99_999, found)
    except Exception:  # Whatever a language lacks there.
        return None
    same = _scripts([spelled]) <= _scripts(_names(locale))
    return found if same else None


@functools.cache
def _spell(value: int, code: str) -> str:
    converters = extras.needs("num2words", "demo").CONVERTER_CLASSES
    text = re.sub(" +", " ", converters[code].to_cardinal(value)).strip()
    return unicodedata.normalize("NFC", text)


def _scripts(texts: Iterable[str]) -> set[str]:
    """Name the scripts of letters as the names of characters begin."""
    letters = {letter for text in texts for letter in text if letter.isalpha()}
    return {unicodedata.name(letter).split()[0] for letter in letters}
