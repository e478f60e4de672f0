"""Languages: their codes in any spelling, their scripts, the words of a text.

Codes are those of BCP 47, with `-` or `_` and in any case: `de`, `pt-BR`,
`zh_hans`, those of three letters that have one of two, and gettext's such as
`sr_RS@latin`. Facts of scripts are Unicode's, others CLDR's, by Babel.
"""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Collection
from typing import Any

import babel
from babel import core

from keras_transformer.config import UserError, logger
from keras_transformer.machine import extras

# Codes that BCP 47 does not have: of LibreTranslate and Argos Translate, and
# of countries, which people take for their language.
_OTHER_CODES = {
    **{"zt": "zh_Hant", "pb": "pt_BR", "jap": "ja", "jp": "ja", "cn": "zh"},
    **{"kh": "km", "vn": "vi", "cz": "cs", "gr": "el", "ua": "uk", "dk": "da"},
}

# Of gettext, behind an @; others are variants, as in ca@valencia.
_MODIFIERS = {
    **{"latin": ["Latn"], "cyrillic": ["Cyrl"], "devanagari": ["Deva"]},
    **{"arabic": ["Arab"], "euro": []},
}

# The languages in which a table may name its columns.
_NAMED_IN = "en de es fr it ja ko pt ru zh zh_Hant".split()

# ISO 15924. Kore and Ethi put spaces, or a mark of their own, between words.
_CHINESE = frozenset("Hans Hant Hani Bopo".split())
_WITHOUT_GAPS = _CHINESE | {"Hira", "Hrkt", "Jpan", "Kana"}
_WITHOUT_SPACES = _WITHOUT_GAPS | {"Khmr", "Laoo", "Mymr", "Thai", "Tibt"}
_RIGHT_TO_LEFT = frozenset(
    "Adlm Arab Aran Hebr Mand Mend Nkoo Rohg Samr Syrc Thaa".split()
)


@dataclasses.dataclass(frozen=True)
class Language:
    """A language as its code names it."""

    code: str  # Of BCP 47, such as pt-BR.
    base: str  # The language alone, such as pt.
    # Of ISO 15924, such as Latn: given, or the likely one; empty if nobody
    # knows.
    script: str

    @property
    def has_spaces(self) -> bool:
        """Whether words stand between spaces."""
        return self.script not in _WITHOUT_SPACES

    @property
    def countries(self) -> set[str]:
        """The country, if the code names one."""
        return {part for part in self.code.split("-") if part.isupper()}

    @property
    def has_gaps(self) -> bool:
        """Whether sentences stand between spaces."""
        return self.script not in _WITHOUT_GAPS

    @property
    def direction(self) -> str:
        """`rtl` if it is written from right to left, otherwise `ltr`."""
        return "rtl" if self.script in _RIGHT_TO_LEFT else "ltr"

    @property
    def names(self) -> list[str]:
        """The English name, then names without the country, its own first."""
        try:
            locale = babel.Locale.parse(self.code, sep="-")
            base = babel.Locale.parse(self.base)
        except (ValueError, babel.UnknownLocaleError):
            return [self.code]
        names = [base.get_display_name(x) for x in (self.base, *_NAMED_IN)]
        return [x or self.code for x in (locale.get_display_name("en"), *names)]

    @property
    def bleu_tokenizer(self) -> str:
        """SacreBLEU's tokeniser for BLEU of this language.

        `char` where words have no spaces and sacreBLEU knows no other.
        """
        if self.base in ("ja", "ko") and self.script != "Latn":
            return f"{self.base}-mecab"
        if self.script in _CHINESE:
            return "zh"
        return "13a" if self.has_spaces else "char"

    def is_same(self, other: "Language") -> bool:
        """Whether both are one language in one script, in any country."""
        bases = {"no" if x.base == "nb" else x.base for x in (self, other)}
        return len(bases) == 1 and self.script == other.script


def is_code(text: object) -> bool:
    """Return whether a text can be a code, and part of a file's name."""
    pattern = r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*(@[a-z]+)?"
    return isinstance(text, str) and bool(re.fullmatch(pattern, text))


def check_sides(source_lang: str, target_lang: str) -> None:
    """Refuse what is no code, and one language for both sides."""
    source, target = language_of(source_lang), language_of(target_lang)
    if source.code == target.code:
        raise UserError(
            f"Expected two different languages, received {source_lang} and "
            f"{target_lang}; change `source_lang` or `target_lang`. For two "
            f"kinds of one language add a variant, as {target_lang}-x-simple."
        )


@functools.cache
def language_of(code: str) -> Language:
    """Look a code up, and warn once if nobody knows its script."""
    language = read_code(code)
    # A longer code, such as the `tree` of a recipe, means no language.
    if not language.script and len(language.base) < 4:
        logger.warning(
            "Nobody knows the script of the language %s, so its words are "
            "taken to stand between spaces; if they do not, name it by its "
            "code of BCP 47, such as ja, or add the script, as in %s-Jpan.",
            code,
            language.base,
        )
    return language


def read_code(code: str) -> Language:
    """Look a code up that may be none of a language."""
    if not is_code(code):
        raise UserError(
            "Expected the code of a language, such as de, pt-BR or zh_Hans, "
            f"received {code!r}."
        )
    code, _, modifier = code.partition("@")
    base, *rest = re.split("[-_]", code)
    rest[:0] = _MODIFIERS.get(modifier, [modifier] * bool(modifier))
    aliases = {**core.get_global("language_aliases"), **_OTHER_CODES}
    base, *more = aliases.get(base.lower(), base.lower()).split("_")
    # Written as BCP 47 advises, by their length.
    cased = {2: str.upper, 3: str.upper, 4: str.title}
    subtags = [cased.get(len(x), str.lower)(x) for x in rest]
    if not any(map(_is_script, subtags)):  # An alias such as sh has one.
        subtags = [x for x in more if _is_script(x) or not rest] + subtags
    # Otherwise the likely one: of the language in its country, or anywhere.
    region = next((x for x in subtags if x.isupper()), "")
    likely = core.get_global("likely_subtags")
    locale = likely.get(f"{base}_{region}") or likely.get(base) or ""
    script = next(filter(_is_script, [*subtags, *locale.split("_")]), "")
    return Language("-".join([base, *subtags]), base, script)


def spelling_in(names: Collection[Any], code: str) -> str:
    """Find how names spell a code: `zh_CN` for `zh-CN`, `eng_Latn` for `en`."""
    codes = {x: read_code(x) for x in names if is_code(x)}
    wanted = read_code(code)
    same = [x for x, known in codes.items() if known.is_same(wanted)]
    same = [x for x in same if len(codes[x].countries | wanted.countries) < 2]
    # Or else the only one of its language and script, such as `zh` for `zh-CN`,
    # or its name, `Chinese` or `中文`.
    exact = [x for x in same if codes[x].code == wanted.code]
    said = {x.casefold() for x in wanted.names}
    same = same or [x for x in names if str(x).casefold() in said]
    likely = exact if len(exact) == 1 else same
    return likely[0] if len(likely) == 1 and code not in codes else code


def _is_script(subtag: str) -> bool:
    return len(subtag) == 4 and subtag.istitle()


def words_of(text: str, language: str) -> list[tuple[int, int]]:
    """Find the words of a text: the start and the end of each.

    They stand between white space; "—" is one. Where a language puts none
    between words, they are what ICU finds with its rules and dictionaries,
    marks among them, or without `icu4py` characters with their marks.
    """
    if language_of(language).has_spaces:
        # One of marks and invisible characters alone is none.
        unseen = "Cf", "Cc", "Mn"
        return [
            word.span()
            for word in re.finditer(r"[^\s—]+|—+", text)
            if any(unicodedata.category(x) not in unseen for x in word[0])
        ]
    lengths: list[int] = []
    if breakers := _icu():
        # ICU counts in UTF-16, and refuses halves of its pairs.
        encoded = text.encode("utf-16-le", "replace")
        whole, base = encoded.decode("utf-16-le"), language_of(language).base
        for start, end in breakers.WordBreaker(whole, base).segments():
            word = encoded[2 * start : 2 * end].decode("utf-16-le")
            lengths.append(len(word))
    else:
        for character in text:
            if lengths and unicodedata.category(character).startswith("M"):
                lengths[-1] += 1
            else:
                lengths.append(1)
    places = itertools.pairwise([0, *itertools.accumulate(lengths)])
    return [x for x in places if not text[slice(*x)].isspace()]


@functools.cache
def _icu() -> Any:
    """Import ICU's break iterators, or say once that they are missing."""
    try:
        from icu4py import breakers
    except ImportError:
        logger.warning(
            "Every character counts as a word where a language has no spaces; "
            "to find words, run %s.",
            extras.install_command("words"),
        )
        return None
    return breakers
