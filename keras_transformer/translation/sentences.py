"""Translates texts sentence by sentence, as suits most models.

sentencex, which knows many languages' abbreviations, finds where sentences end.
"""

import dataclasses
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import TERM
from keras_transformer.machine import extras
from keras_transformer.translation.terms import MARK

# Characters of a line to look at together: for some texts, such as opening
# quotes alone, sentencex's time grows with the square of the length.
_PIECE = 2_048
# What ends a line, a cell or a page ends a sentence too, and stays.
_ENDS = r"\t-\r\x1c\x1d\x85\u2028\u2029"
_LINE_END = re.compile(f"[{_ENDS}]")
# Such a piece, without the space before it: looking for sentences in a blank
# line costs as much as finding one.
_NEXT = re.compile(rf"\S[^{_ENDS}]{{,{_PIECE - 1}}}")
# Emoji and the like, which stay before and behind a sentence. No "○", which
# stands for words in Japanese. A joiner alone may belong to a letter.
_PICTURE = (
    "\u203c\u2049\u2139\u2190-\u21ff\u2300-\u24ff▪▫▶◀◻-◾☀-➿\u2900-\u297f"
    "\u2b00-\u2bff\u3297\u3299\ufe0e\ufe0f\U0001f000-\U0001faff"
    "\U000e0020-\U000e007f"
)
_PICTURES = (
    rf"(?:(?:[{_PICTURE}]\u200d?|[0-9#*]\ufe0f?\u20e3)\s*)*"  # 1️⃣ is one.
)
_BEFORE = re.compile(rf"\s*{_PICTURES}")
# "‼" behind words is read as "!!".
_BEHIND = re.compile(
    rf"(?<=[^\s\u200d\u20e3{_PICTURE}])\s*(?![‼⁉]){_PICTURES}$"
)
# sentencex knows neither those of Khmer and Tibetan nor Greek's own mark, nor
# an ellipsis before a word that begins with no small letter, nor those of
# Chinese and Japanese before a digit.
_OTHER_END = re.compile(
    r"(?<=[។៕།༎\u037e])(?=\s(?!།(?:\s|$)))"
    rf"|(?<=[…⋯])(?=\s+{_PICTURES}[^\W\d_a-zß-öø-ÿα-ώа-џ])"
    r"|(?<=[。！？])(?<![0-9]。)(?=[0-9])"
    r"|(?<=[.!?…。！？।\"”])(?=(?:\s?\[(?:\d{1,3}|[a-z])\])+\s*$)"
    r"|(?<=[^\W\d][.!?…])(?=\[\^\w{1,20}\](?:\s|$))"
)
# In a list that begins with 1, the next number belongs to no sentence.
_LIST = re.compile(r"\W*1[.．](?!\d)")
_NEXT_NUMBER = re.compile(r"(?<=[^\W\d][.!?。！？])(?=\s*(\d{1,2})[.．]\s*$)")
# Behind these, in their languages, no sentence ends.
_TITLES = {
    "fr": re.compile(r"(?<!\w)(?:MM?|Dr|Pr)\.\s+$"),
    "it": re.compile(r"(?<!\w)SS?\.\s+$"),
    "es": re.compile(r"\w\s+D\.\s+$"),
    "de": re.compile(
        r"(?<!\w)(?:d(?:er|ie|as|es|em|en)|[ia]m|[ia]ns|vom|zu[mr]|beim"
        r"|(?:[mds]?ein|ihr|unser)(?:e[mnrs]?)?)\s+\d{1,3}\.\s+$",
        re.IGNORECASE,
    ),
}
_SHORT_WORD = re.compile(r"(?<!\w)\w{1,6}\.\s+$")
_INITIAL = re.compile(r"[A-Z]\.\s+")
# A bullet, a dash in a cell, the number of a list, an address stay as they are.
_KEPT = re.compile(
    r"(?:_|[^\w⠁-⣿])*|\W*(?:\d{1,3}|[A-Za-z])(?:[.．]\d{1,3})*[.．)]"
    r"|(?:\s*\[(?:\d{1,3}|[a-z])\])+"
    r"|[<(]?(?:(?:https?://|www\.)[!-~À-ɏ]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)[>).]?"
)
# So does one before the words of a line; "o" and a tab stand for a bullet.
_BULLET = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]*"
    r"(?:(?:[-+|–—−*·•‣⁃◦∙●○▪▫■□►▸▶➢➤→⇒➔★☆◆◇❖☐☑☒✓✔✗✘\uf0a7\uf0b7]"
    r"|>+|#{1,6}|\[(?:\d{1,3}|[ xX])\]|(?:[ivx]{2,5}|[IVX]{2,5})\."
    # Not "5- and 6-year-olds".
    r"|\d{1,3}[a-z]\.|\d{1,3}\.\)|\d{1,2}[-/](?!\s+\S+\s+\d+[-/])"
    r"|[(（]?(?:\d{1,3}|[A-Za-z]|[ivx]{2,5})[)）]"
    r"|[a-h]\.(?=\s+[A-Z][^.]))(?=\s)|o(?=\t))"
)
# To sentencex like quotation marks. A word such as "(Dr.)" is no sentence.
_BRACKETS = re.compile(
    r"((?:^|(?<=[.!?…。！？)\]]\s))\s*)[(\[]([^\s()\[\]]+"
    r"(?:[!?…。！？]|\s[^()\[\]]*[.!?…。！？]))[)\]]"
    rf"(?=\s+{_PICTURES}[\"“„«¿¡(\[]?[^\W_a-zß-öø-ÿα-ώа-џ])"
)
# With such a particle, or somebody who says it, a sentence of Japanese, Korean
# or Chinese goes on behind a quotation.
_GOES_ON = re.compile(
    "って|など|[とのをはがにも]|で(?![もき])|だった|や(?![っがは])|から|まで|"
    "より|だけ|ばかり|なんて|みたい|じゃ|[的和是等让讓]|之[类類]|[这這][句个個]|"
    "へ(?![えぇー])|[라하]?고|"
    r"라[는며면]|\w{1,5}?(?:[说說问]|[問喊叫答]道|(?:[問答喊]|(?<!知)道)(?!\w))"
)
# Before such a mark, and behind a title, no sentence ends.
_IN_IT = re.compile('(?<=[。！？」』”》〉"])(?=[，、；：—…])|(?<=[》〉])')
# sentencex cuts behind a full-width point, also of a numbered line.
_NUMBER = re.compile(r"\d[.．]\d|(?<![^\s\d])\d．")
# In Chinese and Japanese sentencex cuts behind the points of Latin letters, as
# in names: the end is one character further.
_LATIN = "0-9A-Za-z０-９Ａ-Ｚａ-ｚ"
_IN_NAME = re.compile(
    rf"(?:[{_LATIN}][.．][{_LATIN}]|(?<![{_LATIN}])(?:[A-ZＡ-Ｚ]"
    r"|Mrs?|Ms|Dr|St|vs|No|[JS]r|Prof|Ｍｒｓ?|Ｄｒ|Ｎｏ)[.．]\w)$"
)
# The mark of a footnote, behind the end of a sentence.
_NOTE = re.compile(
    r"[¹²³⁰⁴-⁹*†‡§]+(?:,[¹²³⁰⁴-⁹]+)*|[（(]\d\d?[)）]|※\d?\d?"
    r"|(?:\[\^?\w[\w ,–-]{0,30}\])+"
)
# Marian's way to tell a model of several languages which one to write.
_TAG = re.compile(r"\s*(>>[^<>\s]{1,32}<<)\s*")


class Span(NamedTuple):
    """A sentence, or a part of one, by its place in a text."""

    start: int
    end: int


class Splitter:
    """Takes texts apart into sentences, and puts translations in their places.

    What is known of both languages is looked up once, here.

    Args:
        source_lang: Language code of the texts.
        target_lang: Language code of the translations.

    Attributes:
        languages: Both codes.
    """

    def __init__(self, source_lang: str, target_lang: str) -> None:
        self.languages = source_lang, target_lang
        self._has_gaps = language_of(target_lang).has_gaps
        self._has_spaces = language_of(source_lang).has_spaces
        sentencex = extras.needs("sentencex", "sentences")
        base = language_of(source_lang).base
        self._title = _TITLES.get(base)
        # sentencex knows the abbreviations of English.
        self._short = None if base == "en" else _SHORT_WORD
        self._segment = functools.partial(sentencex.segment, base)

    def spans(self, text: str) -> Iterator[Span]:
        """Find the sentences of a text, a few thousand characters at a time.

        They come in order; between them stands what stays as it is: space,
        bullets, numbers of a list. None crosses the end of a line, a cell or a
        page, or holds the tag before the first. One of more than 2,048
        characters is cut between words, at a comma, or where no mark belongs to
        a letter.
        """
        item, end = 0.0, _start(text)
        text = _masked(text)
        while piece := _NEXT.search(text, end):
            begin, end = piece.span()
            if not item and (bullet := _BULLET.match(text, begin)):
                end = bullet.end()
                continue
            item, places = self._in_line(piece[0], item)
            spans = [Span(begin + x, begin + y) for x, y in places]
            is_last = end == len(text) or _LINE_END.match(text, end)
            if not is_last and len(spans) > 1:
                end = spans.pop().start  # It may go on.
            elif not is_last:
                end = _best_cut(text, begin, end)
                spans = [Span(begin, begin + len(text[begin:end].rstrip()))]
            item = 0 if is_last else item
            for span in spans:
                if not is_kept(text[slice(*span)]):
                    yield span

    def _in_line(
        self, text: str, item: float
    ) -> tuple[float, list[tuple[int, int]]]:
        """Find the places of the sentences of a line, or of a part of one."""
        # `item` is the number of the list's last item, 0 where a line begins
        # and infinite in a line without a list.
        # sentencex 1.0.32 panics at "A\u00a0. B": it takes every space to be
        # one byte long.
        plain = _BRACKETS.sub(r"\1“\2”", re.sub(r"\s", " ", text))
        position, spans = 0, list[tuple[int, int]]()
        item = item or (1 if _LIST.match(plain) else math.inf)
        parts = list[str]()
        for part in self._sentences(plain):
            ends = _OTHER_END.split(part)
            last = _NEXT_NUMBER.search(ends[-1])
            if last and int(last[1]) == item + 1:
                before = ends[-1][: last.start()]
                # Not behind an abbreviation, such as "See Fig. 2."
                if len([*self._segment(f"{before} Xx")]) > 1:
                    ends[-1:] = before, ends[-1][last.start() :]
                    item += 1
            parts += ends
        for part in parts:
            begin = position + len(part) - len(part.lstrip())
            end = position + len(part.rstrip())
            position += len(part)
            # sentencex leaves closing brackets to the next sentence.
            while spans and begin == spans[-1][1] and begin < end:
                if _is_closing(plain, begin):
                    begin += 1
                elif (
                    _IN_IT.match(plain, begin)
                    or _NUMBER.match(plain, begin - 2)
                    or (
                        not self._has_spaces
                        and _IN_NAME.search(plain, begin - 6, begin + 1)
                    )
                    or (
                        (
                            plain[begin - 1] == '"'
                            or _is_closing(plain, begin - 1)
                        )
                        and _GOES_ON.match(plain, begin)
                    )
                ):
                    begin = end
                else:
                    break
                spans[-1] = spans[-1][0], begin
            if spans and begin == spans[-1][1]:
                note = _NOTE.match(plain, begin, end)
                begin = note.end() if note else begin
            begin = end - len(_BEFORE.sub("", plain[begin:end], count=1))
            if begin < end:
                spans.append((begin, end))
        behind = [_BEHIND.search(plain, a, b) for a, b in spans]
        return item, [
            (a, found.start() if found else b)
            for (a, b), found in zip(spans, behind, strict=True)
        ]

    def _sentences(self, line: str) -> list[str]:
        """Take a line apart, but not behind a title, a German "am 3."."""
        parts, is_list = [""], _INITIAL.match(line)
        for part in self._segment(line):
            before = parts[-1][-40:]
            first = re.search(r"[^\W_]", parts[-1])
            if (
                (self._title and self._title.search(before))
                # Of no list, for that would begin with the line.
                or (_INITIAL.fullmatch(parts[-1]) and not is_list)
                # Behind an abbreviation: "Den är t.ex. svart."
                or (
                    first
                    and first[0].isupper()
                    and self._short
                    and self._short.search(before)
                    and re.match(r"[^\W\d_]{2}", part)
                    and part[:2].islower()
                )
            ):
                parts[-1] += part
            else:
                parts.append(part)
        return parts[1:]

    def halves(self, text: str, span: Span) -> tuple[Span, Span] | None:
        """Cut a span between the words nearest to its middle, if it can."""
        if span.end - span.start < 2:
            return None
        words = words_of(_masked(text[slice(*span)]), self.languages[0])
        middle = (span.end - span.start) // 2
        end, start = min(
            (
                (end, start)
                for (_, end), (start, _) in itertools.pairwise(words)
            ),
            key=lambda gap: abs(gap[0] - middle),
            default=(middle, middle),
        )
        first = Span(span.start, span.start + end)
        return first, Span(span.start + start, span.end)

    def together(
        self, text: str, spans: Sequence[Span], parts: Sequence[str]
    ) -> str:
        """Put the translations of a text's spans in their places."""
        return "".join(self.pieces(text, spans, parts))

    def pieces(
        self, text: str, spans: Sequence[Span], parts: Sequence[str]
    ) -> list[str]:
        """Put translations in their places as `together` does, in pieces.

        The spaces before, between and after them are pieces too: between two
        spans of a line Chinese and Japanese have none, and others have one at
        least.
        """
        result: list[str] = []
        position = _start(text)
        for span, part in zip(spans, parts, strict=True):
            gap = text[position : span.start]
            if result and not _LINE_END.search(gap):
                gap = gap if self._has_gaps or gap.strip() else ""
                gap = gap or " " * self._has_gaps
            result += [gap, part]
            position = span.end
        return [*result, text[position:]]


def search_each(
    translator: Any,
    encoded: Iterable[bytes],
    search: Any,
    batching: Any,
    terms: Any = None,
) -> tuple[list[Any], np.ndarray]:
    """Do what `Translator.search_texts` does, sentence by sentence.

    A tag that chooses the target language goes before each.
    """
    from keras_transformer.translation.text_batches import Hypothesis

    check_alone(n_best=search.n_best > 1)
    splitter = Splitter(translator.source_lang, translator.target_lang)
    texts = [text.decode().strip(" \r\n\xa0\u3000") for text in encoded]
    of_texts = [(text, [*splitter.spans(text)]) for text in texts]

    def tell(done: int, total: int) -> None:
        if batching.progress:
            batching.progress(done * len(texts) // total, len(texts))

    results, truncated = translator.search_texts(
        [
            tag_of(text) + text[slice(*span)]
            for text, spans in of_texts
            for span in spans
        ],
        search,
        dataclasses.replace(batching, progress=tell),
        terms=terms,
    )
    whole, are_cut = [], np.zeros(len(texts), bool)
    best = zip(results, truncated, strict=True)
    for number, (text, spans) in enumerate(of_texts):
        of_text = list(itertools.islice(best, len(spans)))
        parts = [hypotheses[0].text for hypotheses, _ in of_text]
        together = splitter.together(text, spans, parts)
        whole.append([Hypothesis(together, math.nan)])
        are_cut[number] = any(is_cut for _, is_cut in of_text)
    return whole, are_cut


def is_kept(text: str) -> bool:
    """Whether a text has nothing to translate: a bullet, a number of a list."""
    return bool(_KEPT.fullmatch(text))


def tag_of(text: str) -> str:
    """Return the tag that a text begins with and a space, or "" without one.

    No sentence of the text has it: put it before each.
    """
    tag = _TAG.match(text)
    return f"{tag[1]} " if tag else ""


def _start(text: str) -> int:
    """Find where a text begins after its tag."""
    tag = _TAG.match(text)
    return tag.end() if tag else 0


def check_alone(**others: bool) -> None:
    """Refuse arguments that make no sense with `split_sentences`."""
    for name, is_given in others.items():
        if is_given:
            raise UserError(
                f"Expected `split_sentences` without `{name}`, received "
                "both; leave one out."
            )


def _masked(text: str) -> str:
    """Make a word of each mark of `terms`, as long as it is."""
    return MARK.sub(lambda x: x[0][len(TERM)].ljust(len(x[0]), "x"), text)


def _best_cut(text: str, begin: int, end: int) -> int:
    """Find where to cut a clause without an end: the best place, the last."""
    for place in (r"\s", r"[^\w\s](?!(?<=\d.)\d)", r"[^\w\s]"):
        cuts = [
            m.end()
            for m in re.finditer(place, text[begin:end])
            if not _is_mark(m[0])
        ]
        # Not so early that pieces of a word or two are left.
        if cuts and cuts[-1] > (end - begin) // 2:
            return begin + cuts[-1]
    # A letter has few marks; of nothing but marks, the end will do.
    places = range(end, (begin + end) // 2, -1)
    return next((i for i in places if not _is_mark(text[i])), end)


def _is_closing(text: str, at: int) -> bool:
    """Return whether there is a closing bracket or quotation mark."""
    return unicodedata.category(text[at]) in ("Pe", "Pf")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"
