"""Finds terms in texts that spell them otherwise and look the same.

Texts and terms are compared by what their characters stand for, as sources are
read: `O’Brien` is `O'Brien`, and a soft hyphen is nothing. Where the words are
in the text as it is, a map of positions says.
"""

import itertools
from collections.abc import Mapping
from unicodedata import category

from keras_transformer.data.languages import language_of
from keras_transformer.data.source_reading import forms_of


class Spellings:
    """Terms by what their characters stand for, in any case.

    Args:
        terms: What words become. Those in small letters count in any case.
        language: Language code of the words.

    Attributes:
        known: Terms by form in one case, then by spelling; "" is any in
            capitals.
        lengths: How long these forms are, the longest first.
    """

    def __init__(self, terms: Mapping[str, str], language: str) -> None:
        self._is_turkic = language_of(language).base in ("tr", "az")
        self._folded: dict[str, str] = {}
        self.known: dict[str, dict[str, str]] = {}
        for term, wanted in terms.items():
            form = "".join(forms_of(term))
            spellings = self.known.setdefault("".join(self._forms(term)), {})
            spellings[term] = wanted
            spellings.setdefault(form, wanted)
            if form == self._small(form):
                spellings.setdefault("", wanted)
        lengths = {len(form) for form in self.known} - {0}
        self.lengths = sorted(lengths, reverse=True)

    def read(self, text: str) -> tuple[str, list[int], dict[int, int]]:
        """Return a text's form in one case, with maps to it and back.

        What shows nothing belongs to what is before it.
        """
        forms = self._forms(text)
        at = [0, *itertools.accumulate(map(len, forms))]
        place = {there: here for here, there in enumerate(at)}
        return "".join(forms), at, place

    def get(self, form: str, words: str) -> str | None:
        """Return what words of a form become, if they are a term."""
        spellings = self.known[form] if words else {}
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


def are_letters(text: str) -> list[bool]:
    """Return which characters are of words; what shows nothing goes on."""
    letters = [x.isalnum() or category(x)[0] == "M" for x in text]
    if not text.isascii():
        for i, form in enumerate(forms_of(text)):
            if not form.strip("\u200c\u200d"):
                letters[i] = i > 0 and letters[i - 1]
    return letters
