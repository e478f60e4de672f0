"""Translates texts sentence by sentence, as suits most models.

sentencex, which knows many languages' abbreviations, finds where sentences end.
"""

import dataclasses
import functools
import itertools
import math
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import TERM
from keras_transformer.machine import extras
from keras_transformer.translation.terms import ADDRESS, MARK

# Characters of a line to look at together: for some texts, such as opening
# quotes alone, sentencex's time grows with the square of the length.
_PIECE = 2_048
# What ends a line, a cell or a page ends a sentence too, and stays.
_ENDS = r"\t-\r\x1c\x1d\x85\u2028\u2029"
_LINE_END = re.compile(f"[{_ENDS}]")
# Such a piece, without the space before it: looking for sentences in a blank
# line costs as much as finding one.
_NEXT = re.compile(rf"\S[^{_ENDS}]{{,{_PIECE - 1}}}")
# No "○" is among emoji and the like, for it stands for words in Japanese. A
# joiner alone may belong to a letter.
_UNSEEN = "\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
_PICTURE = (
    "\u2139\u2190-\u21ff\u2300-\u24ff▪▫▶◀◻-◾☀-➿\u2900-\u297f"
    "\u2b00-\u2bff\u3297\u3299\ufe0e\ufe0f\U0001f000-\U0001faff"
    "\U000e0020-\U000e007f"
)
_SMALL = "".join(x for x in map(chr, range(0x530)) if x.islower())
_BIG = rf"[^\W\d_{_SMALL}]"
_CAPITAL = "".join(x for x in map(chr, range(0x530)) if x.isupper())
_LATIN = "0-9A-Za-z０-９Ａ-Ｚａ-ｚ"
_END = ".!?…。！？।॥؟۔"
_ENDING = rf"(?<![{_END}])[{_END}]+(?![{_END}])"
# To a model of single sentences, those of a quotation are single ones as well.
# sentencex cuts none between quotation marks, so it sees spaces in their place.
_QUOTES = "\"'“”„‟‘’‚‛«»‹›「」『』｢｣〝〞〟"
# Before a sentence, but not before the number of a king.
_BEFORE_NEXT = r"(?! [IVX]{2})(?=(?:[«”“’‘\"]| ?»)? +(?:[-–—] ?)?[«»‘-„\"]?"
_BEFORE_NEXT += rf"{_BIG})"


def _listed(language: str) -> str:
    """Read what the file has of a language, as a regular expression."""
    path = pathlib.Path(__file__).with_name("abbreviations.txt")
    named = re.findall("(?m)^([a-z_ ]+): (.+)", path.read_text("utf-8"))
    return "|".join(x for codes, x in named if language in codes.split())


# sentencex is shown other characters at some places: a space, which is left out
# of sentences before and behind it, "\n", which ends one, an end that it knows,
# and "X", which ends nothing and begins anything.
_SHOWN = [
    # A sign that is a word of its sentence, as in "①と②を比べる。".
    (
        rf"(?:[{_PICTURE}※●◆◇■□▼▲]|[（(]\d\d?[)）]|\[\d\d?\]|\*\d?\d?)(?=的"
        r"|印?を|に(?:は|つい|あ)|のうち|印?[がはのにもでと][\dァ-ヺ一-鿿]"
        r"|(?:[、とや和与及或至到〜～~-]|から)[①-⑳❶-❿（(])",
        "X",
    ),
    # Marks of footnotes: behind an end, "1" there alone, "[1]" within too.
    (
        rf"(?:(?<=[{_END}])|(?<=[{_END}][)”\"]))(?:[¹²³⁰-⁹†‡§]+(?:,[¹²³⁰-⁹]+)*"
        r"|[*※](?:\d\d?(?![\d年月日時個名人円回%歳階泊分台枚件万元岁楼/・～〜])"
        r"|(?!\*))：?|[（(]\d\d?[)）]|(?:\[\^?(?:(?<![。！？]\[)"
        r"|(?=[^]]{0,30}\d\]|要出|[来來]源))\w[\w ,–-]{0,30}\])+"
        rf"(?:: ?\d[\d–-]*)?)|(?<=[{_SMALL}]{{3}}[.!?])(?<!fig.)(?<!vol.)\d\d?"
        rf"(?=\s+[^\W{_SMALL}]|\s*$)|(?:\[\d{{1,3}}\]"
        rf"|(?<![^{_END}\]] )\[[a-z]\])(?:: ?\d[\d–-]*)?",
        " ",
    ),
    # Borders of texts in a line, and bullets without a space.
    (
        rf"\[(?:…|\.{{3}})\](?=\s+{_BIG}|\s*$)|"
        r"(?<=\S) +(?:\|(?!\S)|[•·✓✔✅☑➤](?= +(?:\D|\d{4})))"
        r"|(?<=[^\s\d]) +[•·](?= )"
        r"|(?<![^\s。！？])(?:[・･·•●◆◇■□▼▲①-⑳❶-❿]|※(?:\d[\s：])?)(?=[\w「“])",
        "\n",
    ),
    (rf"[{_PICTURE}]\u200d?|[0-9#*]\ufe0f?\u20e3", " "),  # 1️⃣ is one.
    (rf"(?<![^\s{_END}])[{_UNSEEN}]+|(?<![{_UNSEEN}])[{_UNSEEN}]+(?!\S)", " "),
    (rf"(?<=[{_END}»”“\"’]) +[-–—](?= \W?{_BIG})", " "),
    # To sentencex they are brackets.
    (r"(?:(?<=\S )|(?<=\w))[<>](?= ?[$€£]?\.?\d)", "0"),
    # Ends that sentencex does not know, also behind words that it takes for
    # abbreviations. In Hindi a bar is easier to type than a danda.
    (
        r"[។៕།༎\u037e](?= (?!།(?: |$)))|(?<=[ऀ-ॣ])\|(?=\s|$)"
        rf"|(?:[…⋯]|\b(?:{_listed('ends')})\.){_BEFORE_NEXT}"
        r"|(?<=\w)(?:[!?]{2,}|\.{3})(?= I\b)",
        "X!",
    ),
    # Between two dashes an exclamation belongs to its sentence.
    (rf"(?<=\w)—+[^\s—{_END}]+[！？]+(?=—)", "X"),
    # In Chinese and Japanese also before a digit, a small Latin letter, and
    # dots or dashes with words behind them.
    (
        r"(?<=[。！？])(?:[—-]+|…+)(?=\w)"
        r"|(?:(?<=[ぁ-鿿][!?])|(?<=[。！？])(?<!\D\d。)(?<!\D\d\d。))"
        r"(?:\d(?!\d?[.．、]\D)|[a-z](?=[^\W\d_]))",
        "X",
    ),
    # None of "R.I.B." is "R.", and of "l'art." the abbreviation is "art."
    (rf"(?<=\b[{_CAPITAL}])\.(?=[{_CAPITAL}]\.)", " "),
    (rf"(?<=[^\Wぁ-鿿])[{_QUOTES}](?!\w{{3}})|(?<!\S)['’](?=[nst]\b)", "X"),
]
# In these sentencex begins no sentence with a digit, "§", "%s" or a month.
_WORDS_FIRST = "ca cs da de fi kk lb oc sk".split()
_DIGIT = (
    rf"(?:(?<=[{_SMALL}]{{3}}\. )|(?<=[!?] ))(?:[\d§%](?!\d*[.)](?!\d\d))"
    r"|J[au]n|Feb|Mär|Apr|Mai\b|Jul|Aug|Sep|Okt|Nov|Dez)",
    "X",
)
# Elsewhere the points of names, such as "J.K.", are none of sentences.
_NAMES = (
    rf"(?<=[{_LATIN}])[.．](?=[{_LATIN}])|(?<![{_LATIN}])(?:[A-ZＡ-Ｚ]|Mrs?|Ms|Dr"
    r"|St|vs|No|[Vv](?:er|ols?)|[JS]r|Prof|Figs?|Eqs?|Sec|pp?|i\.e|e\.g|[ap]\.m|Ｍｒｓ?"
    r"|Ｄｒ|Ｎｏ)[.．]"
    rf"(?= ?[{_LATIN}]|\w|(?<![A-ZＡ-Ｚ][.．]) \w)"
)
_SAID = r"(?:said|asked|answered|replied|cried|thought)\b"
# No sentence ends before a comma, a colon, "he said" or the rest of a word, in
# a title, a number, "(Fig. 1)", "A.TXT" or "a.b.C"; in "came.She" one does.
_WITHIN = (
    rf"{_ENDING}(?=[{_QUOTES}》〉]*[,;，、；：—…]|[{_QUOTES}）)]+[。.]|[》〉]"
    rf"|[のをと][ァ-ヺ一-鿿]|と(?:か|いう|いった)|[{_QUOTES}]+ [{_SMALL}]"
    rf"|[{_QUOTES}]+ (?:I|(?<=[?!]. )(?:(?:Mr?s?|Dr)\. )?[A-Z]\w+) {_SAID}"
    r"|[-–/]\w|(?<=[“「].)[”」]|(?<=\?) (?:or|and|for|on|in|to|from|at)\b"
    rf"|[ºª°]|[{_QUOTES}]? ?(?:[-–—/] ?[{_SMALL}]|:[\s\d])| \(\d+\) *[,.:;[]"
    rf"|(?<=[.!?])[/%{{$])|(?<!\S)\.(?=[{_CAPITAL}])"
    r"|(?<=\d)[.．](?=[\d–-])|(?<=[とや和与及式図图表\d]) (?=\()"
    rf"|(?<=\()[^\s()][^(){_ENDS}]* (?=\w{{1,4}}\))|:-?[()](?!\w)"
    rf"|(?<=\b[а-я])\.(?=[а-я]\b)|(?<=[{_CAPITAL}])\.(?=[{_CAPITAL}](?!\.))"
    rf"(?!(?<=[{_CAPITAL}]{{2}}\.)(?!Net)[{_CAPITAL}][{_SMALL}])"
    rf"|(?<=\w)\.(?=[{_CAPITAL}](?:[{_CAPITAL}]|\w+(?:\.\w|\()))"
    rf"|(?<![\w.])[a-z]\w*\.[a-z][\w.]*\.(?=[{_CAPITAL}])"
)
# The number before an item of a list, behind a border or the end of a sentence.
_ITEM = re.compile(
    r"(?:(^\W*|[:：，；](?:\s+|(?<!\d:))|(?<=\S)(?:  +(?!1\.)|\s*\u3000))"
    r"|(?<=[^\W\d][.!?。！？]|.[।॥؟۔])\s*|(?<=\d[.!?])\s+(?=\(?\w+\)))"
    r"((\d{1,3})[.．、](?=\s|[^\W\d])"
    rf"|[(（]?(?:\d{{1,3}}|[a-k]|[ivx]{{2,4}})[)）](?=\s+\W?{_BIG}))"
)
# Also behind words without an end, if the first three count up.
_LOOSE_ITEM = re.compile(
    r"(^\W*|(?:[:：]|(?<=[ぁ-鿿]) )\s*|(?<=[?!]) (?=\(?1\))|(?:(?<=[^\s,;]) "
    rf"|(?<=[{_END}，、；ぁ-鿿])\s*)(?!\(?[1１१١]\D))"
    rf"(\(?(\d{{1,3}})(?:[.．、]|\)(?= )))(?=\s*{_BIG})"
)
# What is left: of two, sentencex makes a list whose last item takes the rest.
_MARK = re.compile(
    r"(\([^() ]+ [^()]*\))"
    r"|(?<=\S )(?<!\b\w\. )\(?(?:\w\.?|\d\d|[IVXivx]+)\)(?= )"
)
# Of a short word before a small letter: "Den är t.ex. svart."
_POINT = (
    r"(?:(?<=\w)(?<!\w{7})\.|(?<=\w)[?!]?\.\.+)"
    rf"(?= +[{_SMALL}](?:[{_SMALL}]|\s))"
)
# In a line that begins with a small letter, sentences do so too.
_CHAT = r"(?:(?<=[!?] )|(?<=\w\w(?:[aeiou]\w|\w[aeiou]|[ghms]t)\. ))[a-z]"
# A bullet, a dash in a cell, the number of a list, an address stay as they are.
_KEPT = re.compile(
    r"(?:_|[^\w⠁-⣿])*|\W*(?:\d{1,3}|[A-Za-z])(?:[.．]\d{1,3})*[.．)]"
    r"|(?:\s*\[(?:\d{1,3}|[a-z])\])+|[\d:,.]+ --> [\d:,.]+.*"
    r"|[<(]?(?:(?:https?://|www\.)[!-~À-ɏ]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)[>).]?"
)
# So does one before the words of a line; "o" and a tab stand for a bullet.
_BULLET = re.compile(
    r"(?:(?:[-+|–—−*·•‣⁃◦∙●○■□►▸◆◇\uf0a7\uf0b7]"
    r"|>+|#{1,6}|\[[ xX]\]|(?:[ivx]{2,5}|[IVX]{2,5})\."
    # Not "5- and 6-year-olds".
    r"|\d{1,3}[a-z]\.|\d{1,3}\.\)|\d{1,2}[-/](?!\s+\S+\s+\d+[-/])"
    r"|[(（]?(?:\d{1,3}|[A-Za-z]|[ivx]{2,5})[)）]"
    rf"|[a-h]\.(?=\s+[A-Z][^.])|\d\d?(?:[.X]\d\d?){{1,3}}(?= +[{_CAPITAL}])"
    r"|[¹²³⁴⁵]|\*+\)?)(?=\s)|o(?=\t)|\*\*?(?=[^\W_])(?![^*\n]*\*)"
    r"|(?:\d\d?[.．、]|[（(]?\d\d?[)）])(?=[\u3041-\u9fff]))"
)
# To sentencex like quotation marks. A word such as "(Dr.)" is no sentence.
_BRACKETS = re.compile(
    rf"((?:^|(?<=[{_END})\]]\s))\s*)[(\[]([^\s()\[\]]+"
    rf"(?:[{_END[1:]}]|\s[^()\[\]]*[{_END}]))[)\]]"
    rf"(?=\s+[\"“„«¿¡(\[]?[^\W_{_SMALL}]|\s*$)"
    r"|((?:^|(?<=[。！？）)]))\s*)[（(]([^（）()]*[。！？])[）)]"
)
# Behind an end, a closing mark belongs to it, and one that may also open.
_CLOSING = re.compile(
    r"(?:[)\]}）］｝】〕〉》」』｣〟»›”’_]|\*\*|</\w+>|[\"'“‘«‹](?!\w)"
    r"|[ \xa0\u202f]»(?!\w))+"
)
# Before a beginning, those that open it, as in "« Oui".
_OPENING = f"{_QUOTES}([（¿¡ \xa0\u202f"
# "Start » Shop > Tea", a line without an end or an opening mark.
_CRUMBS = re.compile(rf"(?m)^[^\n«‹{_END}]+$")
_NEXT_CRUMB = re.compile(r"(?<=\S)[ \xa0\u3000][»›>＞](?=[ \xa0\u3000])")
# Marian's way to tell a model of several languages which one to write.
_TAG = re.compile(r"\s*(>>[^<>\s]{1,32}<<)\s*")


class Span(NamedTuple):
    """A sentence, or a part of one, by its place in a text."""

    start: int
    end: int


@dataclasses.dataclass(order=True)
class Sentence:
    """A part of a text that the model translates by itself."""

    number: int  # Of the text in its request.
    text: str
    span: Span
    tag: str  # What the model reads before it, or "".
    # Texts and scores, best first, no two texts alike.
    hypotheses: Sequence[tuple[str, float]] = ()
    # Which words belong together, if that is known.
    links: list[tuple[int, int]] | None = None

    @property
    def source(self) -> str:
        """The sentence alone."""
        return self.text[slice(*self.span)]

    @property
    def best(self) -> str:
        """The text of the best hypothesis."""
        return self.hypotheses[0][0]


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
        source, target = map(language_of, self.languages)
        self._has_gaps = target.has_gaps
        # Behind words of ours, where the source has none.
        self.space = " " * (target.has_spaces and not source.has_spaces)
        sentencex = extras.needs("sentencex", "sentences")
        self._segment = functools.partial(sentencex.segment, source.base)
        # sentencex knows the abbreviations of English.
        self._goes_on_small = source.base != "en"
        names = "quoted", source.base, f"ends_{source.base}"
        quoted, short, ends = map(_listed, names)
        self._rules = [(rf"\b(?:{ends})\.{_BEFORE_NEXT}", "X!")] * bool(ends)
        self._rules += [*_SHOWN, *[_DIGIT] * (source.base in _WORDS_FIRST)]
        within = [_WITHIN, rf"{_ENDING}(?=[」』｣”’〟)）»]+ ?(?:{quoted}))"]
        within += [_NAMES] * (not source.has_spaces)
        behind = r"(?= |[CDMS]\.|(?<=\d\.)[^\W\d])"  # Or as in "der 1.FC".
        within += [rf"(?i:(?<!\w)(?:{short})\.{behind})"] * bool(short)
        self._within = re.compile("|".join(within))

    def spans(self, text: str) -> Iterator[Span]:
        """Find the sentences of a text, a few thousand characters at a time.

        They come in order; between them stands what stays as it is: space,
        bullets, numbers of a list. None crosses the end of a line, a cell or a
        page, or holds the tag before the first. One of more than 2,048
        characters is cut between words, at a comma, or where no mark belongs to
        a letter.
        """
        is_first, end = True, tag.end() if (tag := _TAG.match(text)) else 0
        given = re.sub(rf'"([^"{_ENDS}]*)"', r"“\1”", text)
        given = _CRUMBS.sub(lambda x: _NEXT_CRUMB.sub(" |", x[0]), given)
        text = self._shown(given)
        while piece := _NEXT.search(text, end):
            floor, (begin, end) = end, piece.span()
            if is_first and (bullet := _BULLET.match(text, begin)):
                end = bullet.end()
                continue
            spans = self._in_line(given, piece[0], begin, floor)
            is_first = end == len(text) or bool(_LINE_END.match(text, end))
            if not is_first and len(spans) > 1:
                end = spans.pop().start  # It may go on.
            elif not is_first:
                end = _best_cut(text, begin, end)
                spans = [Span(begin, begin + len(text[begin:end].rstrip()))]
            yield from (x for x in spans if not is_kept(given[slice(*x)]))

    def _shown(self, text: str) -> str:
        """Return what sentencex is to see in place of a text, as long as it."""
        # sentencex 1.0.32 panics at "A\u00a0. B": spaces count as one byte.
        text = re.sub(rf"[^\S{_ENDS}\u3000]|\u3000(?!\d)", " ", _masked(text))
        text = re.sub(r"\b\xad\b", "x", text)
        text = re.sub(ADDRESS, lambda x: re.sub("[.!?]", "x", x[0]), text)
        for rule, character in self._rules:
            text = _filled(rule, character, text)
        text = self._within.sub(lambda x: re.sub(r"\W", "X", x[0]), text)
        return re.sub(f"[^{_ENDS}]+", self._without_numbers, text)

    def _without_numbers(self, found: re.Match[str]) -> str:
        """Let a new line begin in place of each number of a list."""
        line, number = found[0], 1
        shown = [*re.sub(f"[{_QUOTES}\u3000]", " ", line)]
        letter = r"\b[A-Ia-i](?=\) )"  # To count, "c)" is 3.
        counted = re.sub(letter, lambda x: str(ord(x[0]) % 32), line)
        loose = [*_LOOSE_ITEM.finditer(counted)]
        is_list = [int(x[3]) for x in loose[:3]] == [1, 2, 3]
        for item in loose if is_list else _ITEM.finditer(line):
            if item[3] and int(item[3]) != number:
                continue
            start, end = item.span(2)
            # Not behind an abbreviation, such as "See Fig. 2."
            before = line[max(0, start - 40) : start].split()[-1:]
            if item[1] is not None or [*self._segment(f"{before[0]} Xx")][1:]:
                shown[start:end] = "\n".ljust(end - start)
                number += bool(item[3])
        return _MARK.sub(lambda x: x[1] or "X" * len(x[0]), "".join(shown))

    def _in_line(
        self, given: str, line: str, begin: int, floor: int
    ) -> list[Span]:
        """Find the sentences of a line, or of a part of one, that begins so.

        None begins before `floor`.
        """
        if not re.match(r"[A-Z]\. ", line):  # No list from A on.
            line = re.sub(rf"(?<=[{_END}] )[A-Z]\.(?= )", "XX", line)
        if self._goes_on_small:
            is_chat = re.match(rf"[\W_]*[{_SMALL}]", line)
            line = _filled(_CHAT if is_chat else _POINT, "X", line)
        line = _BRACKETS.sub(r"\1\3 \2\4 ", line)
        position, spans = begin, list[Span]()
        for part in self._segment(line):
            start, position = max(position, floor), position + len(part)
            part = line[start - begin : position - begin].rstrip()
            if sentence := part.lstrip():
                end = start + len(part)
                start = end - len(sentence)
                before = given[floor:start]
                opening = before[len(before.rstrip(_OPENING)) :].lstrip()
                floor = x.end() if (x := _CLOSING.match(given, end)) else end
                spans.append(Span(start - len(opening), floor))
        return spans

    def halves(self, text: str, span: Span) -> tuple[Span, Span] | None:
        """Cut a span between the words nearest to its middle, if it can."""
        if span.end - span.start < 2:
            return None
        words = words_of(_masked(text[slice(*span)]), self.languages[0])
        middle = (span.end - span.start) // 2
        gaps = [(x, y) for (_, x), (y, _) in itertools.pairwise(words)]
        gaps = gaps or [(middle, middle)]
        end, start = min(gaps, key=lambda gap: abs(gap[0] - middle))
        first = Span(span.start, span.start + end)
        return first, Span(span.start + start, span.end)

    def pieces(
        self, text: str, spans: Sequence[Span], parts: Sequence[str]
    ) -> list[str]:
        """Put the translations of a text's spans in their places.

        The spaces before, between and after them are pieces too: between two
        spans of a line Chinese and Japanese have none, and others have one at
        least.
        """
        result: list[str] = []
        position = tag.end() if (tag := _TAG.match(text)) else 0
        for span, part in zip(spans, parts, strict=True):
            gap = text[position : span.start]
            if result and not _LINE_END.search(gap):
                gap = gap if self._has_gaps or gap.strip() else ""
                gap = gap or " " * self._has_gaps
            gap = self.space * bool(result and gap[:1].strip()) + gap
            gap += self.space * bool(gap[-1:].strip())
            result += [gap, part]
            position = span.end
        tail = text[position:]
        return [*result, self.space * bool(result and tail[:1].strip()) + tail]


def search_each(
    translator: Any,
    texts: Iterable[str],
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
    texts = [text.rstrip(" \r\n\xa0\u3000") for text in texts]
    of_texts = [(text, [*splitter.spans(text)]) for text in texts]

    def tell(done: int, total: int) -> None:
        if batching.progress:
            batching.progress(done * len(texts) // total, len(texts))

    each = (tag_of(x) + x[slice(*y)] for x, spans in of_texts for y in spans)
    told = dataclasses.replace(batching, progress=tell)
    results, truncated = translator.search_texts(
        [*each], search, told, terms=terms
    )
    whole, are_cut = [], np.zeros(len(texts), bool)
    best = zip(results, truncated, strict=True)
    for number, (text, spans) in enumerate(of_texts):
        of_text = list(itertools.islice(best, len(spans)))
        parts = [hypotheses[0].text for hypotheses, _ in of_text]
        together = splitter.pieces(text, spans, parts)
        whole.append([Hypothesis("".join(together), math.nan)])
        are_cut[number] = any(is_cut for _, is_cut in of_text)
    return whole, are_cut


def is_kept(text: str) -> bool:
    """Whether a text has nothing to translate: a bullet, a number of a list."""
    return bool(_KEPT.fullmatch(text))


def tag_of(text: str) -> str:
    """Return the tag that a text begins with and a space, or "" without one.

    No sentence of the text has it: put it before each.
    """
    return f"{tag[1]} " if (tag := _TAG.match(text)) else ""


def check_alone(**others: bool) -> None:
    """Refuse arguments that make no sense with `split_sentences`."""
    for name in filter(others.get, others):
        raise UserError(
            f"Expected `split_sentences` without `{name}`, received both; "
            "leave one out."
        )


def _masked(text: str) -> str:
    """Make a word of each mark of `terms`, as long as it is."""
    return MARK.sub(lambda x: x[0][len(TERM)].ljust(len(x[0]), "x"), text)


def _filled(rule: str, character: str, text: str) -> str:
    first, last = character[0], character[-1]
    return re.sub(f"(?m){rule}", lambda x: last.rjust(len(x[0]), first), text)


def _best_cut(text: str, begin: int, end: int) -> int:
    """Find where to cut a clause without an end: the best place, the last."""
    for place in (r"\s", r"[^\w\s](?!(?<=\d.)\d)", r"[^\w\s]"):
        places = re.finditer(place, text[begin:end])
        cuts = [x.end() for x in places if not _is_mark(x[0])]
        # Not so early that pieces of a word or two are left.
        if cuts and cuts[-1] > (end - begin) // 2:
            return begin + cuts[-1]
    # A letter has few marks; of nothing but marks, the end will do.
    last = range(end, (begin + end) // 2, -1)
    return next((i for i in last if not _is_mark(text[i])), end)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"
