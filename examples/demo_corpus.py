"""Makes the demo's text: numbers, dates, times and amounts in two languages.

    pip install num2words
    python examples/demo_corpus.py FOLDER

`num2words` spells, `Babel` knows the names and formats of either country, and
a fixed seed draws the values. Each English phrase has exactly one German
counterpart, and vice versa. The package holds what this wrote
(`keras_transformer/data/demo`), so that newer versions of both libraries
change no figure. Take it as a pattern for rows of your own.
"""

import datetime
import functools
import itertools
import pathlib
import random
import sys

import num2words
from babel import dates, numbers

Pair = tuple[str, str]
LANGUAGES = ("en", "de")
SPLIT_SIZES = {"train": 20_000, "val": 500, "test": 500}
# Their English names end in s if there are several.
CURRENCIES = (("euro", "Euro"), ("dollar", "Dollar"))
GOODS = (
    ("The book", "Das Buch"),
    ("The lamp", "Die Lampe"),
    ("The table", "Der Tisch"),
    ("The bicycle", "Das Fahrrad"),
    ("The coat", "Der Mantel"),
    ("The clock", "Die Uhr"),
)
EVENTS = (
    ("The train leaves at", "Der Zug fährt um"),
    ("The film starts at", "Der Film startet um"),
    ("The shop opens at", "Der Laden öffnet um"),
    ("The class ends at", "Der Kurs endet um"),
)


def main(folder: str) -> None:
    """Write `SPLIT.en` and `SPLIT.de`."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for split, pairs in all_splits().items():
        for side, language in enumerate(LANGUAGES):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            path = pathlib.Path(folder, f"{split}.{language}")
            path.write_text(text, "utf-8")


def all_splits() -> dict[str, list[Pair]]:
    """Draw all pairs at once, so that no text can end up in two splits."""
    draw, size = random.Random(1), sum(SPLIT_SIZES.values())
    kinds = (_number, _spelled_date, _date, _time, _spelled_amount, _amount)
    # More than needed, since repetitions are dropped.
    drawn = iter(
        draw.choices(kinds, weights=(30, 20, 15, 10, 20, 5), k=2 * size)
    )
    to_german: dict[str, str] = {}
    while len(to_german) < size:
        english, german = next(drawn)(draw)
        to_german[english] = german
    # Keep the order drawn, which is random already.
    pairs = iter(to_german.items())
    return {
        split: list(itertools.islice(pairs, size))
        for split, size in SPLIT_SIZES.items()
    }


@functools.cache
def _spell(value: int, language: str, form: str = "cardinal") -> str:
    return num2words.num2words(value, lang=language, to=form)


def _number(draw: random.Random) -> Pair:
    """Three hundred and two, dreihundertzwei."""
    digits = draw.randint(1, 6)
    value = draw.randrange(10**digits)
    if value > 1999 and value // 1000 % 100 == 1:
        # num2words spells 101,000 "einhunderteinstausend": one s too many.
        value += 1000
    return _spell(value, "en"), _spell(value, "de")


def _day(draw: random.Random) -> datetime.date:
    first = datetime.date(1900, 1, 1)
    last = datetime.date(2099, 12, 31)
    return first + datetime.timedelta(draw.randint(0, (last - first).days))


def _in_both(day: datetime.date, form: str) -> Pair:
    english, german = LANGUAGES
    return (
        dates.format_date(day, form, locale=english),
        dates.format_date(day, form, locale=german),
    )


def _spelled_date(draw: random.Random) -> Pair:
    """Friday, the third of May, and the year; Freitag, der dritte Mai."""
    day = _day(draw)
    weekday, month = _in_both(day, "EEEE"), _in_both(day, "MMMM")
    return (
        f"{weekday[0]}, the {_spell(day.day, 'en', 'ordinal')} of {month[0]}, "
        f"{_spell(day.year, 'en', 'year')}",
        f"{weekday[1]}, der {_spell(day.day, 'de', 'ordinal')} {month[1]} "
        f"{_spell(day.year, 'de', 'year')}",
    )


def _date(draw: random.Random) -> Pair:
    """Friday, May 3, 1996, Freitag, 3. Mai 1996; or without weekday."""
    return _in_both(_day(draw), draw.choice(("full", "long")))


def _time(draw: random.Random) -> Pair:
    """The train leaves at 3:05 PM. Der Zug fährt um 15:05 Uhr."""
    time = datetime.time(draw.randrange(24), draw.randrange(60))
    english, german = draw.choice(EVENTS)
    # The pattern is written out: the default has a no-break space before PM.
    clock = dates.format_time(time, "h:mm a", locale="en")
    uhr = dates.format_time(time, "H:mm", locale="de")
    return f"{english} {clock}.", f"{german} {uhr} Uhr."


def _spelled_amount(draw: random.Random) -> Pair:
    """The book costs two euros and ten cents."""
    whole, cents = draw.randint(1, 999), draw.randint(2, 99)
    unit, german_unit = draw.choice(CURRENCIES)
    english, german = draw.choice(GOODS)
    # "ein Euro", not "eins Euro"; the same at the end of 101.
    german_whole = _spell(whole, "de")
    if whole % 100 == 1:
        german_whole = german_whole.removesuffix("s")
    return (
        f"{english} costs {_spell(whole, 'en')} {unit}{'s' * (whole > 1)} "
        f"and {_spell(cents, 'en')} cents.",
        f"{german} kostet {german_whole} {german_unit} "
        f"und {_spell(cents, 'de')} Cent.",
    )


def _amount(draw: random.Random) -> Pair:
    """The book costs €234.50. Das Buch kostet 234,50 €."""
    value = draw.randrange(100, 10 ** draw.randint(3, 5)) / 100
    currency = draw.choice(("EUR", "USD", "GBP"))
    english, german = draw.choice(GOODS)
    price, preis = (
        numbers.format_currency(value, currency, locale=language)
        for language in LANGUAGES
    )
    # Babel puts a no-break space between number and sign.
    preis = preis.replace("\N{NO-BREAK SPACE}", " ")
    return f"{english} costs {price}.", f"{german} kostet {preis}."


if __name__ == "__main__":
    main(sys.argv[1])
