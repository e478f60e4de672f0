"""Marks terms in a text, and what stays as it is, for a model that knows marks.

A mark encloses words of the source and says what they become:

    Turn on the <term>lamp<as>Leuchte</term> in <term>{room}<as></term>.

With nothing behind `<as>` they stay as they are. Whole marks in a text count; a
symbol of one elsewhere gets a space: `< term>`.
"""

import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import category

from keras_transformer.config import SettingError, UserError
from keras_transformer.data import lines
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import AS, END, KEPT, MARKS, TERM
from keras_transformer.data.texts import checked_texts

_SYMBOL = "|".join((*MARKS, *KEPT))
MARK = re.compile(f"({TERM}(?:(?!{_SYMBOL}).)+{AS}(?:(?!{_SYMBOL}).)*{END})")
# Addresses of the web and of e-mail, placeholders, tags and code. A bare tag
# may be a symbol of the vocabulary.
_AS_IT_IS = re.compile(
    r"""
    (?:https?://|www\.)[!#-;=?-_a-~À-ӿ]*[\wÀ-ӿ/]
    | (?<![\wÀ-ӿ.+-])[\wÀ-ӿ.+-]{1,64}@[\wÀ-ӿ-]+(?:\.[\w-]+)+
    | (?<!\w)`[^`\n]+`(?!\w)
    | \{\{[^{}\n]*\}\} | \$?\{[^{}\s]*\} | \$[A-Za-z_]\w*
    | (?<![\w%])%(?:\d+\$|\(\w+\))?(?:\.\d+)?[sdifgxc@](?!\w)
    | <[A-Za-z][\w:-]*(?:\s[^<>]*)?/> | <[A-Za-z][\w:-]*\s+[\w:-]+=[^<>]*>
    """,
    re.VERBOSE | re.ASCII,
)
LONGEST = 100  # Characters of a term.
UNKNOWN = (
    "Expected a model that knows marked terms to give `terms` to, received "
    "one that never met any; train it with the recipe @terms (`term_share`)."
)


class Terms:
    """What to mark in texts of a language.

    Args:
        terms: What words of the source become, "" for as they are. Words in
            small letters are found in any case. Of two that begin at one word
            the longer one counts.
        source_lang: Language code of the texts.
    """

    def __init__(self, terms: Mapping[str, str], source_lang: str) -> None:
        self._terms = _checked(terms)
        lengths = {len(source) for source in self._terms}
        self._lengths = sorted(lengths, reverse=True)
        self._language = source_lang

    def mark(self, text: str) -> str:
        """Mark a text: what it has marked itself, terms, and what stays."""
        return "".join(
            part if number % 2 else self._marked(part)
            for number, part in enumerate(MARK.split(text))
        )

    def _marked(self, text: str) -> str:
        text = re.sub(_SYMBOL, lambda x: f"< {x[0][1:]}", text)
        parts, done = [""], 0
        for start, end, wanted in self._found(text):
            parts += [text[done:start], TERM, text[start:end], AS, wanted, END]
            done = end
        return "".join([*parts, text[done:]])

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Find what to mark: its place, and what is wanted."""
        done = 0
        kept = [(*x.span(), "") for x in _AS_IT_IS.finditer(text)]
        for start, end, wanted in [*kept, (len(text), len(text), "")]:
            yield from self._terms_in(text, done, start)
            if start < end:
                yield start, end, wanted
            done = end

    def _terms_in(
        self, text: str, begin: int, end: int
    ) -> Iterator[tuple[int, int, str]]:
        borders = {begin + x for x in self._borders(text[begin:end])}
        for start in sorted(borders):
            for length in self._lengths:
                words = text[start : start + length]
                source = words if words in self._terms else words.lower()
                wanted = self._terms.get(source)
                stop = start + length
                if begin <= start and wanted is not None and stop in borders:
                    yield start, stop, wanted
                    begin = stop
                    break

    def _borders(self, text: str) -> set[int]:
        """Find where words begin and end, if that is asked."""
        if not self._terms:
            return set()
        if not language_of(self._language).has_spaces:
            return {*itertools.chain(*words_of(text, self._language))}
        letters = [x.isalnum() or category(x)[0] == "M" for x in text]
        pairs = itertools.pairwise([False, *letters, False])
        return {
            place
            for place, (one, other) in enumerate(pairs)
            if not (one and other)
        }


def marked(
    texts: Sequence[bytes], terms: Mapping[str, str] | None, translator: Any
) -> list[bytes]:
    """Mark the texts of a translator, if its model knows marks."""
    if getattr(translator.tokenizer, "has_marks", False):
        mark = Terms(terms or {}, translator.source_lang).mark
        return [mark(text.decode()).encode() for text in texts]
    if terms:
        raise UserError(UNKNOWN)
    return [*texts]


def _checked(terms: Mapping[str, str]) -> dict[str, str]:
    """Refuse what is no glossary; leave out spaces at ends."""
    if not isinstance(terms, Mapping):
        expected = "texts by texts, such as {'lamp': 'Leuchte'}"
        raise SettingError("terms", expected, terms)
    texts = [*terms, *terms.values()]
    for text in checked_texts("terms", texts, in_utf_8=True):
        if len(text) > LONGEST or re.search(_SYMBOL, text):
            expected = f"terms of at most {LONGEST} characters, without marks"
            raise SettingError("terms", expected, text)
    return {x.strip(): y.strip() for x, y in terms.items() if x.strip()}


def read(path: pathlib.Path) -> dict[str, str]:
    """Read a file with a term on each line: source, a tab, what is wanted."""
    terms = {}
    with lines.open_file(path, "`terms`") as file:
        for number, line in enumerate(lines.read_lines(file, str(path)), 1):
            source, tab, wanted = line.partition("\t")
            if "\t" in wanted or bool(source.strip()) != bool(tab):
                raise UserError(
                    "Expected words of the source, a tab and what they become "
                    f"in line {number} of {path}, found {line[:60]!r}."
                )
            if tab:
                terms[source] = wanted
    return terms
