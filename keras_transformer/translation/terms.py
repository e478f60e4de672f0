"""Marks terms in a text, and what stays as it is, for a model that knows marks.

A mark encloses words of the source and says what they become:

    Turn on the <term>lamp<as>Leuchte</term> in <term>{room}<as></term>.

With nothing behind `<as>` they stay as they are. Whole marks in a text count; a
symbol of one elsewhere gets a space: `< term>`.

Texts and terms are compared by what their characters stand for, as sources are
read: `O’Brien` is `O'Brien`, and a soft hyphen is nothing.
"""

import itertools
import pathlib
import re
from collections.abc import Callable, Mapping
from unicodedata import category

from keras_transformer.config import SettingError, UserError
from keras_transformer.data import lines
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import AS, END, KEPT, MARKS, TERM
from keras_transformer.data.source_reading import forms_of
from keras_transformer.data.texts import checked_texts

_SYMBOL = "|".join((*MARKS, *KEPT))
MARK = re.compile(f"({TERM}(?:(?!{_SYMBOL}).)+{AS}(?:(?!{_SYMBOL}).)*{END})")
# Characters of an address, and letters of scripts that may follow it without a
# space; those belong to it in a host and where a name or a value begins.
_IN, _BEHIND = (
    "!#-;=?-_a-~À-ӿ",
    "\u0e00-\u1fff々〇ぁ-\ud7a3\U00020000-\U0003ffff",
)
ADDRESS = (
    rf"(?:https?://(?:[{_BEHIND}]+\.)*|www\.)[{_IN}]+"
    rf"(?:(?<=/wiki/|.....[=#])[{_BEHIND}][{_IN}{_BEHIND}]*)?"
    rf"(?<=[\wÀ-ӿ/{_BEHIND}])"
)
# And addresses of e-mail, placeholders, tags and code. A bare tag may be a
# symbol of the vocabulary.
_AS_IT_IS = re.compile(
    rf"({ADDRESS}|"
    r"""
      (?<![\wÀ-ӿ.+-])[\wÀ-ӿ.+-]{1,64}@[\wÀ-ӿ-]+(?:\.[\w-]+)+
    | (?<!\w)`[^`\n]+`(?!\w)
    | \{\{[^{}\n]*\}\} | \$?\{[^{}\s]*\} | \$[A-Za-z_]\w*
    | (?<![\w%])%(?:\d+\$|\(\w+\))?(?:\.\d+)?[sdifgxc@](?!\w)
    | <[A-Za-z][\w:-]*(?:\s[^<>]*)?/> | <[A-Za-z][\w:-]*\s+[\w:-]+=[^<>]*>
    )""",
    re.VERBOSE | re.ASCII,
)
# What ICU may cut through: letters of Chinese, or four of another script.
_IS_SURE = re.compile("(?:.*[㐀-鿿].*|.{4,})(?<=[\u0e00-\uf8ff])").fullmatch
# A field as spreadsheets quote it.
_QUOTED = re.compile(r'(?<![^\t])"((?:[^"\t]|"")*)"(?![^\t])')
LONGEST = 100  # Characters of a term.


class Terms:
    """What to mark in texts of a language.

    Args:
        terms: What words of the source become, "" for as they are. Words in
            small letters are found in any case. Of two that begin at one word
            the longer one counts.
        source_lang: Language code of the texts.
    """

    def __init__(self, terms: Mapping[str, str], source_lang: str) -> None:
        language = language_of(source_lang)
        self._language, self._has_spaces = source_lang, language.has_spaces
        self._is_turkic = language.base in ("tr", "az")
        self._folded: dict[str, str] = {}
        # By form in one case, then by spelling; "" is any in capitals.
        self._known: dict[str, dict[str, str]] = {}
        for term, wanted in _checked(terms).items():
            form = "".join(forms_of(term))
            spellings = self._known.setdefault("".join(self._forms(term)), {})
            spellings[term] = wanted
            spellings.setdefault(form, wanted)
            if form == self._small(form):
                spellings.setdefault("", wanted)
        lengths = {len(form) for form in self._known} - {0}
        self._longest_first = sorted(lengths, reverse=True)

    def mark(self, text: str) -> str:
        """Mark a text: what it has marked itself, terms, and what stays."""
        parts = MARK.split(text)
        parts[::2] = map(self._marked, parts[::2])
        return "".join(parts)

    def _marked(self, text: str) -> str:
        text = re.sub(_SYMBOL, lambda x: f"< {x[0][1:]}", text)
        parts = _AS_IT_IS.split(text)
        parts[1::2] = (f"{TERM}{x}{AS}{END}" for x in parts[1::2])
        if self._longest_first:
            parts[::2] = map(self._with_terms, parts[::2])
        return "".join(parts)

    def _with_terms(self, text: str) -> str:
        forms = self._forms(text)
        whole = "".join(forms)
        # Where a character of the text is in its form, and where one of the
        # form is in the text: what shows nothing belongs to what is before it.
        at = [0, *itertools.accumulate(map(len, forms))]
        place = {there: here for here, there in enumerate(at)}
        borders = {place[at[border]] for border in self._borders(text)}
        parts, done = [""], 0
        for start in sorted(borders):
            first = at[start]
            for length in self._longest_first if start >= done else ():
                form = whole[first : first + length]
                if form not in self._known:
                    continue
                stop = place.get(first + len(form), start)
                words = text[start:stop]
                wanted = self._wanted(form, words)
                if wanted is not None and (
                    stop in borders or self._is_cut(words, start, borders)
                ):
                    parts += [text[done:start], TERM, words, AS, wanted, END]
                    done = stop
                    break
        return "".join([*parts, text[done:]])

    def _wanted(self, form: str, words: str) -> str | None:
        """Return what words of a form become, if they are a term."""
        spellings = self._known[form] if words else {}
        plain = "".join(forms_of(words))
        keys = words, plain, self._small(plain), *[""] * words.isupper()
        return next((spellings[x] for x in keys if x in spellings), None)

    def _small(self, form: str) -> str:
        form = form.replace("I\u0307", "i")
        return (form.replace("I", "ı") if self._is_turkic else form).lower()

    def _forms(self, text: str) -> list[str]:
        """Return what each character stands for, in one case."""
        folded, forms = self._folded, forms_of(text)
        for form in {*forms} - folded.keys():
            folded[form] = self._small(form).casefold()
        return [folded[form] for form in forms]

    def _is_cut(self, words: str, start: int, borders: set[int]) -> bool:
        """Return whether ICU has cut a term elsewhere than at its end."""
        inside = range(start + 1, start + len(words))
        is_sure = not self._has_spaces and _IS_SURE(words)
        return bool(is_sure) and not borders.isdisjoint(inside)

    def _borders(self, text: str) -> set[int]:
        """Find where words begin and end."""
        if not self._has_spaces:
            return {*itertools.chain(*words_of(text, self._language))}
        letters = [x.isalnum() or category(x)[0] == "M" for x in text]
        if not text.isascii():
            for i, form in enumerate(forms_of(text)):
                if not form.strip("\u200c\u200d"):  # Shows nothing: goes on.
                    letters[i] = i > 0 and letters[i - 1]
        pairs = itertools.pairwise([False, *letters, False])
        return {i for i, both in enumerate(pairs) if not all(both)}


def marker(
    terms: Mapping[str, str] | None, source_lang: str, knows_marks: bool
) -> Callable[[str], str]:
    """Return what marks a text for a model; nothing is, if it knows no marks.

    Raises:
        UserError: The terms are no glossary, or the model knows no marks.
    """
    if knows_marks:
        return Terms(terms or {}, source_lang).mark
    if terms:
        raise UserError(
            "Expected a model that knows `terms`, received another; train one "
            "with the recipe @terms (`term_share`)."
        )
    return str


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
            line = _QUOTED.sub(lambda x: x[1].replace('""', '"'), line)
            source, tab, wanted = line.partition("\t")
            if "\t" in wanted or bool(source.strip()) != bool(tab):
                raise UserError(
                    "Expected words of the source, a tab and what they become "
                    f"in line {number} of {path}, found {line[:60]!r}."
                )
            if tab:
                terms[source] = wanted
    return terms
