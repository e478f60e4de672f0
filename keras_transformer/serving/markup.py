"""Translates the text of HTML and leaves its tags.

Python's parser finds where tags and texts begin; what is not text is copied as
it was sent. A segment is the text between two blocks. No other element cuts it,
whatever its name is and wherever it ends. In the translation each element
encloses the words that the word links give to its words.

Code and elements marked `translate="no"` are words that come back whole. A
model that knows marks gets a mark in their place; another reads what they say.
What says nothing has one place in its sentence, like an image. All this takes
time in proportion to the HTML.
"""

import bisect
import collections
import dataclasses
import html
import itertools
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser

from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import KEPT
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Sentence
from keras_transformer.serving.versions import card_of
from keras_transformer.translation.sentences import (
    Span,
    Splitter,
    is_kept,
    tag_of,
)

# The most characters of HTML in a request: a second's work, if all are tags.
MAX_HTML = 1 << 17

# What is no phrasing content in HTML's standard or no text of its sentence.
_BLOCKS = {
    *"""
    address article aside audio blockquote body br canvas caption center col
    colgroup dd details dialog dir div dl dt fieldset figcaption figure footer
    form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li
    listing main menu nav noframes noscript ol optgroup option p plaintext pre
    search section summary table tbody td template tfoot th thead title tr ul
    video xmp
    """.split()
}
# Before a text beside another one, but not in words of one without spaces.
_BESIDE = re.compile(
    r"(?i)</(button|label)>(?:\s|<input[^<>]*>)*(?=<\1)|(?<!\s)</a>(?=<a\b[^<>]*>"
    r"(?:<[^<>]*>)*[^\W\d_\u0e00-\u109f\u1780-\u17ff\u2e80-\U0010ffff])"
)
_VOID = {*"area base embed img input link meta param source track wbr".split()}
# Come back whole: those that say nothing, and those that do.
_UNSEEN = "math noembed noframes object pre rp rt script style svg xmp".split()
_UNSEEN += ["iframe", "textarea"]
_CODE = {"code", "kbd", "samp"}
# Which of these are over before a tag, though they have no end tag.
_ENDS = {"p": ["p"], **dict.fromkeys(["rp", "rt", "/ruby"], ["rp", "rt"])}
_DEPTH = 32  # Of nested elements; those further in enclose nothing.
_LONGEST = 60  # Characters of code that a model without marks reads.
_WHITE = " \t\r\n\f"
# Before a number of so many digits that Python reads it slowly or not at all.
_ENDLESS = re.compile(r"&(?=#\d{99})")
_LINE_END = re.compile("[\t-\r\x85\u2028\u2029]")
# Like an image are a picture, a footnote's mark, a raised number or sign, a
# heading's link to itself, and before words and a space a bullet or number.
_MARK = re.compile(
    r"\[(?:\d{1,3}|[a-z]|edit)\]|[*†‡¹²³⁰⁴-⁹•\u2190-\u21ff\u2300-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f]+|(?P<a>[#¶§])"
    r"|(?P<raised>\(?\d{1,3}(?:,\d{1,3})*\)?)|(?P<sup>[®™©]|\[[^\[\]]{1,30}\])"
    r"|(?P<first>[-–—·]|\d{1,3}[.)]|[a-z]\)|[o§](?=\s*\xa0))(?P<space>\s*)"
)
_SIGNS = (*string.punctuation, *"¡«»¿–—‘’‚“”„…‹›、。「」『』！（），：；？")
# Where a sentence may be over.
_END = re.compile(r"[.!?…]+(?=\W*(?:\s|$))|[。！？]")
# What stands for code, where a model marks what is in braces.
_STAND_IN = re.compile(r"( ?)\{KT(\d+)\}?")
_TAG = re.compile("<[^<>]*>")

# What was sent, its kind, and what it says. The kind is a word (#), white space
# ( ), code (=), the start and end of an element, "(" and ")", a start without
# an end (<), a border (|) or what has one place (.).
Part = tuple[str, str, str]


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate whole pages of HTML or parts, as `Job.search` does texts."""
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML"
        )
    has_marks = itertools.repeat(card_of(job.model).terms)
    pages: list[list[Segment]] = await job.apart(
        list, map(read, texts, has_marks)
    )
    segments, tags = list[Segment](), list[str]()
    for page in pages:
        segments += page
        # As in plain text, the tag of a whole goes before each of its parts.
        tags += [tag_of("".join(x.text for x in page))] * len(page)
    found = await job.search([x.text for x in segments], tags=tags)
    # Only elements ask which words belong together.
    pairs = zip(segments, found, strict=True)
    asking = [y for x, those in pairs if x.elements for y in those]
    await job.link(asking, _with_symbols)
    splitters = itertools.repeat(job.splitter)
    done: list[str] = await job.apart(
        list, map(Segment.put, segments, found, splitters)
    )
    parts = iter(done)
    return [["".join(itertools.islice(parts, len(page)))] for page in pages]


def _with_symbols(text: str) -> str:
    """Write what a model that knows marks reads and writes for code."""
    return _STAND_IN.sub(lambda x: x[1] + KEPT[int(x[2]) % len(KEPT)], text)


def read(source: str, has_marks: bool = False) -> list["Segment"]:
    """Read HTML, a whole page or a part."""
    # A model knows so many marks in a sentence.
    parts, marks, left = list[Part](), itertools.count(), len(KEPT)
    pieces = _Reader(source).pieces
    ends = [*(piece.start for piece in pieces[1:]), len(source)]
    for piece, end in zip(pieces, ends, strict=True):
        sent, kind, text = source[piece.start : end], piece.kind, ""
        if kind == "#" and not re.match("<[a-zA-Z/!?]", sent):
            for word in re.findall(f"[{_WHITE}]+|[^{_WHITE}]+", sent):
                # White space between words is one space.
                text = " " if word[0] in _WHITE else _said(word)
                parts.append((word, " " if text == " " else "#", text))
                left = len(KEPT) if _END.search(text) else left
            continue
        if kind == "=":
            text = " ".join(_said(_TAG.sub("", sent)).split())
            if text and has_marks and left:
                text, left = f"{{KT{next(marks)}}}", left - 1
            text = text if len(text) <= _LONGEST else ""
            text = _END.sub("", text[:-1]) + text[-1:]
        left = len(KEPT) if kind == "|" else left
        parts.append((sent, kind if text or kind not in "#=" else ".", text))
    segments, end = list[Segment](), 0
    kinds = "".join(kind for _, kind, _ in parts)
    # What would stay at the edges of a segment anyway is not part of it.
    for place in re.finditer(r"[#=(](?:[^|]*[#=)])?|\Z", kinds):
        before = "".join(sent for sent, _, _ in parts[end : place.start()])
        end = place.end()
        segments.append(Segment(before, parts[place.start() : end]))
    return segments


def _said(text: str) -> str:
    """Read text of HTML."""
    return _LINE_END.sub(" ", html.unescape(_ENDLESS.sub("&amp;", text)))


@dataclasses.dataclass
class _Piece:
    """Where a piece begins, and what it is."""

    start: int
    kind: str
    name: str
    block: int  # The number of the last border.
    is_first: bool  # Behind it, without words between.
    is_whole: bool  # An element that comes back whole, until it ends.


class _Reader(HTMLParser):
    """Finds the pieces of HTML; each ends where the next one begins."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.pieces = list[_Piece]()
        self._source, self._block, self._is_first = source, 0, True
        self._beside = -1  # Where a text begins beside another one.
        # Numbers of start tags that wait for an end, by name.
        self._opened = collections.defaultdict[str, list[int]](list)
        # In one line, columns count from the start. The other two are comments
        # to a browser; the parser skips one and may fail at the other.
        one_line = _ENDLESS.sub(" ", source.replace("\n", " "))
        self.feed(one_line.replace("</>", "<!>").replace("<![", "<! "))
        # A tag without an end makes all behind it one piece that is no text. If
        # closed, the parser would try it again and again.
        self._add("#")
        # Nor does a browser end these.
        for name in (*_BLOCKS, *self.CDATA_CONTENT_ELEMENTS):
            self._end(name)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        for name in _ENDS.get(tag, ()):
            self._end(name)
        # Of two with the same name, the first counts.
        values = {name: value or "" for name, value in reversed(attrs)}
        is_no = values.get("translate", "").lower() == "no"
        is_no |= "notranslate" in values.get("class", "").split()
        is_code, is_unseen = is_no or tag in _CODE, tag in _UNSEEN
        kind = "." if is_unseen or tag in _VOID else "=" if is_code else "<"
        is_block = tag in _BLOCKS or self.getpos()[1] == self._beside
        self._opened[tag].append(len(self.pieces))
        self._add("|" if is_block else kind, tag, is_code or is_unseen)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self._add("|" if tag in _BLOCKS else ".")

    def handle_endtag(self, tag: str) -> None:
        at = self.getpos()[1]
        beside = _BESIDE.match(self._source, at, at + 999)
        self._beside = beside.end() if beside else -1
        for name in _ENDS.get(f"/{tag}", ()):
            self._end(name)
        number = self._opened[tag].pop() if self._opened[tag] else -1
        # What was in an element that comes back whole is gone.
        kind = "|" if tag in _BLOCKS else "."
        if 0 <= number < len(self.pieces) and self.pieces[number].name == tag:
            start = self.pieces[number]
            is_pair = start.kind == "<" and start.block == self._block
            if start.is_whole or (is_pair and self._is_mark(start)):
                self._swallow(number)
                return
            if is_pair:
                start.kind, kind = "()"
        self._add(kind)

    def handle_data(self, data: str) -> None:
        self._add("#")
        self._is_first &= data.isspace()

    def handle_comment(self, data: str) -> None:
        self._add(".")

    handle_pi = handle_comment

    def handle_decl(self, decl: str) -> None:
        self._add(".")

    def _add(self, kind: str, name: str = "", is_whole: bool = False) -> None:
        if kind == "|":
            self._block, self._is_first = self._block + 1, True
        start, block, is_first = self.getpos()[1], self._block, self._is_first
        self.pieces.append(_Piece(start, kind, name, block, is_first, is_whole))

    def _end(self, name: str) -> None:
        for number in self._opened.pop(name, ()):
            if number < len(self.pieces) and self.pieces[number].is_whole:
                self._swallow(number)

    def _swallow(self, number: int) -> None:
        """Make all since a start tag one piece."""
        del self.pieces[number + 1 :]
        start = self.pieces[number]
        start.is_whole, self._block = False, start.block
        start.kind = "." if start.kind == "<" else start.kind

    def _is_mark(self, start: _Piece) -> bool:
        """Return whether an element that is over is like an image."""
        at, end, name = start.start, self.getpos()[1], start.name
        if end - at > _LONGEST * 5:
            return False
        # In it, before it and behind it.
        places = (at, end), (max(at - 99, 0), at), (end, end + _LONGEST * 5)
        texts = (_said(_TAG.sub("", self._source[x:y])) for x, y in places)
        mark = _MARK.fullmatch(next(texts))
        if not mark:
            return False
        before, behind = texts
        if mark["first"]:
            is_apart = mark["space"] or (behind or " ")[0].isspace()
            return start.is_first and bool(is_apart)
        if mark["raised"] and name == "sub":
            return before[-1:].isdigit()
        if mark["raised"] and name == "a":
            return bool(_END.match(before.rstrip("\"'”’»)")[-1:]))
        return (
            name == "sup" if mark["raised"] else mark.lastgroup in (None, name)
        )


@dataclasses.dataclass(eq=False)
class _Element:
    """An element of a segment: its tags, and its place in the text."""

    before: list[str]  # A tag, and space where the text has one already.
    start: int
    end: int = 0
    is_closed: bool = True
    code: str = ""  # What the text has for one that comes back whole.
    copy: Span | None = None  # Of that, in the translation.
    after: list[str] = dataclasses.field(default_factory=list)
    children: list["_Element"] = dataclasses.field(default_factory=list)


class Segment:
    """Text and elements between two blocks, and what is before them."""

    def __init__(self, before: str, parts: Sequence[Part]) -> None:
        self.sent = before + "".join(sent for sent, _, _ in parts)
        self._whole = _Element([before], 0)
        last, opened, text, too_deep = list[str](), [self._whole], "", 0
        self._codes: list[_Element] = []
        for sent, kind, word in parts:
            is_out = kind in "(<" and len(opened) > _DEPTH
            if is_out or (kind == ")" and too_deep):
                too_deep += {"(": 1, ")": -1}.get(kind, 0)
                kind = "."
            if kind == " " and text[-1:] in ("", " "):
                last.append(sent)
            elif kind in " #":
                text += word
                last = []  # Takes a second space.
            elif kind == ")":
                while not opened[-1].is_closed:
                    opened.pop().end = len(text)
                element = opened.pop()
                element.end, element.after = len(text), [sent]
                last = element.after if element.start == len(text) else last
            else:
                element = _Element([sent], len(text), is_closed=kind != "<")
                opened[-1].children.append(element)
                last = element.before
                if kind in "(<":
                    opened.append(element)
                elif kind == "=":
                    element.code, text, last = word, text + word, []
                    self._codes.append(element)
                element.end = len(text)
        for element in opened:
            element.end = len(text)
        self.elements = self._whole.children
        said = "".join(word for _, kind, word in parts if kind == "#")
        # To translate.
        self.text = "" if is_kept(said) else text

    def put(self, sentences: Sequence[Sentence], splitter: Splitter) -> str:
        """Write the translations of the sentences, with elements in place.

        Text that comes back unchanged is written as it was sent.
        """
        best = [each.best for each in sentences]
        if best == [each.source for each in sentences]:
            return self.sent
        spans = [each.span for each in sentences]
        pieces = splitter.pieces(self.text, spans, best)
        self._target = "".join(pieces)
        self._has_spaces = language_of(splitter.languages[1]).has_spaces
        # Of each word of the translation, its place and its source word's.
        self._words: list[tuple[Span, Span]] = []
        # Where sentences begin, and words begin and end: in the text, in the
        # words and in the translation.
        self._borders: list[tuple[int, int, int]] = [(0, 0, 0)]
        starts = [*itertools.accumulate(map(len, pieces))][::2]
        for each, at in zip(sentences, starts, strict=False):
            self._borders.append((each.span.start, len(self._words), at))
            self._link(each, at, splitter.languages)
            border = each.span.end, len(self._words), at + len(each.best)
            self._borders.append(border)
        self._borders.sort()
        words, inside = Span(0, len(self._words)), Span(0, len(self._target))
        return self._whole.before[0] + self._inner(self._whole, words, inside)

    def _link(
        self, sentence: Sentence, at: int, languages: tuple[str, str]
    ) -> None:
        """Find out which words of a translation come from which."""
        source = _words(sentence.source, languages[0], sentence.span.start)
        target = _words(sentence.best, languages[1], at)
        origins = {i: origin for origin, i in sentence.links or ()}
        copied = self._copied(sentence, at)
        edges = [*itertools.chain(*(code.copy for code in copied if code.copy))]
        ends = {code.start: code.end for code in copied}
        for i, word in enumerate(target):
            # Words without a link keep their order.
            origin = source[origins.get(i, i * len(source) // len(target))]
            # Code is a word of its own, whatever stands beside it.
            first = bisect.bisect_right(edges, word.start)
            last = bisect.bisect_left(edges, word.end)
            cuts = dict.fromkeys([word.start, *edges[first:last], word.end])
            for start, end in itertools.pairwise(cuts):
                number = len(self._words)
                here = Span(ends.get(origin.start, origin.start), origin.end)
                inside = bisect.bisect_right(edges, start)
                if inside % 2:
                    code = copied[inside // 2]
                    here = Span(code.start, code.end)
                self._words.append((Span(start, end), here))
                self._borders.append((here.start, number, start))
                if here.end < sentence.span.end:
                    self._borders.append((here.end, number + 1, end))

    def _copied(self, sentence: Sentence, at: int) -> list[_Element]:
        """Find code that a translation has copied, in its order."""
        first, last = (
            bisect.bisect_left(self._codes, place, key=lambda x: x.start)
            for place in sentence.span
        )
        waiting = collections.defaultdict[str, list[_Element]](list)
        for code in reversed(self._codes[first:last]):
            waiting[code.code].append(code)
        names = "|".join(map(re.escape, sorted(waiting, key=len, reverse=True)))
        copied = list[_Element]()
        pattern = rf"(?:(?<!\w)|(?!\w))(?:{names})(?:(?!\w)|(?<!\w))"
        for match in re.finditer(pattern, sentence.best) if waiting else ():
            if waiting[match[0]]:
                copied.append(waiting[match[0]].pop())
                copied[-1].copy = Span(at + match.start(), at + match.end())
        return copied

    def _inner(self, element: _Element, words: Span, inside: Span) -> str:
        """Write what is in an element: these words, these characters."""
        runs, placed = self._runs(element, words), []
        for child in element.children:
            if run := runs.get(child):
                placed.append((run, self._around(child, run), child))
                continue
            # Without words it goes to the next border of a word.
            number, at = words.end, inside.end
            i = bisect.bisect_left(self._borders, (child.start,))
            if i < len(self._borders) and self._borders[i][0] < element.end:
                _, number, at = self._borders[i]
            placed.append((Span(number, number), Span(at, at), child))
        parts, at = list[str](), inside.start
        for run, place, child in sorted(placed, key=lambda each: each[0]):
            start = min(max(at, place.start), inside.end)
            end = min(max(start, place.end), inside.end)
            inner, pads = "", ("", "")
            if not child.code:
                inner = self._inner(child, run, Span(start, end))
            elif start == end and self._has_spaces:
                # The model has left it out: it stands apart from words.
                before = self._target[max(start - 1, 0) : start]
                behind = self._target[start : start + 1]
                pads = " " * before.isalnum(), " " * behind.isalnum()
            gap = _written(self._target[at:start])
            parts += gap + pads[0], *child.before, inner, *child.after, pads[1]
            at = end
        parts.append(_written(self._target[at : inside.end]))
        return "".join(parts)

    def _runs(self, element: _Element, words: Span) -> dict[_Element, Span]:
        """Find for each child a run of words that mostly come from its own."""
        children = [each for each in element.children if each.start < each.end]
        ends = [child.end for child in children]
        best: dict[_Element, tuple[int, Span]] = {}
        latest: dict[_Element, tuple[int, Span]] = {}
        for number in range(*words):
            _, origin = self._words[number]
            i = bisect.bisect_right(ends, origin.start)
            if i == len(ends) or children[i].start >= origin.end:
                continue
            child = children[i]
            # Another word costs as much as one of its own gains.
            gain, run = latest.get(child, (0, Span(number, number)))
            gain -= number - run.end
            start = run.start if gain > 0 else number
            latest[child] = max(gain, 0) + 1, Span(start, number + 1)
            if latest[child][0] > best.get(child, (0,))[0]:
                best[child] = latest[child]
        return {child: run for child, (_, run) in best.items()}

    def _around(self, element: _Element, run: Span) -> Span:
        """Find a run's characters; a comma left out before stays left out."""
        start = self._words[run.start][0].start
        end = self._words[run.end - 1][0].end
        if element.code:
            if element.copy:
                return element.copy
            if _STAND_IN.fullmatch(element.code):
                return Span(start, start)
            # The words behind often look back at it, such as a preposition.
            last = run.start + len(element.code.split())
            end = self._words[min(last, run.end) - 1][0].end
        text = self._target[start:end]
        if self.text.endswith(_SIGNS, 0, element.start):
            start = end - len(text.lstrip("".join(_SIGNS)))
        if self.text.startswith(_SIGNS, element.end):
            end -= len(text) - len(text.rstrip("".join(_SIGNS)))
        return Span(start, end)


def _words(text: str, language: str, at: int) -> list[Span]:
    return [Span(at + x, at + y) for x, y in words_of(text, language)]


def _written(text: str) -> str:
    """Write text as HTML; code that a model wrote twice is there once."""
    return html.escape(_STAND_IN.sub("", text), False)
