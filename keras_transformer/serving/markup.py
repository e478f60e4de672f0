"""Translates the text of HTML and leaves its tags.

Python's parser finds where tags and texts begin; what is not text is copied as
it was sent. A segment is the text between two blocks, with the inline elements
that open and close in it. In the translation each element encloses the words
that the word links give to its words.

Code, the reading above a word and elements marked `translate="no"` come back
whole: like an image, each has one place in its sentence. All this takes time in
proportion to the HTML.
"""

import bisect
import dataclasses
import html
import itertools
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser

from keras_transformer.data.languages import words_of
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Sentence
from keras_transformer.translation.sentences import (
    Span,
    Splitter,
    is_kept,
    tag_of,
)

# The most characters of HTML in a request: a second's work, if all are tags.
MAX_HTML = 1 << 17

# Sentences go on across the borders of these.
_INLINE = """
    a abbr acronym area b bdi bdo big cite code data del dfn em font i img input
    ins kbd label mark math meter nobr noembed object output progress q rb rp rt
    rtc ruby s samp script slot small span strike strong style sub sup svg
    textarea time tt u var wbr
""".split()
_VOID = "area base br col embed hr img input link meta param source wbr".split()
_LEFT_ALONE = """
    code iframe kbd math noembed noframes object pre rp rt samp script style svg
    textarea xmp
""".split()
# Before which of these an element is over, though it has no end tag.
_ENDS = {"p": ["p"], **dict.fromkeys(["rp", "rt"], ["rp", "rt", "/ruby"])}
_DEPTH = 64  # Of nested elements; elements further out are borders.
_WHITE = " \t\r\n\f"
# Before a number of so many digits that Python reads it slowly or not at all.
_ENDLESS = re.compile(r"&(?=#\d{99})")
_LINE_END = re.compile("[\t-\r\x85\u2028\u2029]")
_RAISED = re.compile("<su[pb]", re.IGNORECASE)
# An element with a picture, the mark of a footnote, a raised number behind such
# a sign, or before words and a space a bullet or number, is like an image.
_MARK = re.compile(
    r"\[(?:\d{1,3}|[a-z])\]|[*†‡¹²³⁰⁴-⁹•←-⇿■-➿\U0001f000-\U0001faff\ufe0f]+"
    r"|(?<=[.!?…,;:。！？\"”“»])(\(?\d{1,3}(?:,\d{1,3})*\)?)"
    r"|(?<!.)(?:[-–—·]|\d{1,3}[.)]|[a-z]\))(?:\s+|())"
)
_SIGNS = (*string.punctuation, *"¡«»¿–—‘’‚“”„…‹›、。「」『』！（），：；？")

# What was sent, and what it is: a word (#), white space ( ), the tag of an
# inline element (b or /b), a border (|) or something else.
Piece = tuple[str, str]


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate whole pages of HTML or parts, as `Job.search` does texts."""
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML"
        )
    pages: list[list[Segment]] = await job.apart(list, map(read, texts))
    segments, tags = list[Segment](), list[str]()
    for page in pages:
        segments += page
        # As in plain text, the tag of a whole goes before each of its parts.
        tags += [tag_of("".join(x.text for x in page))] * len(page)
    found = await job.search([x.text for x in segments], tags=tags)
    # Only elements ask which words belong together.
    pairs = zip(segments, found, strict=True)
    await job.link([y for x, those in pairs if x.elements for y in those])
    splitters = itertools.repeat(job.splitter)
    done: list[str] = await job.apart(
        list, map(Segment.put, segments, found, splitters)
    )
    parts = iter(done)
    return [["".join(itertools.islice(parts, len(page)))] for page in pages]


def read(source: str) -> list["Segment"]:
    """Read HTML, a whole page or a part."""
    pieces, reader = list[Piece](), _Reader(source)
    places = itertools.pairwise([*reader.starts, len(source)])
    for (start, end), name in zip(places, reader.names, strict=True):
        piece = source[start:end]
        if name != "#" or re.match("<[a-zA-Z/!?]", piece):
            pieces.append((piece, name.strip("#")))
            continue
        for word in re.findall(f"[{_WHITE}]+|[^{_WHITE}]+", piece):
            pieces.append((word, " " if word[0] in _WHITE else "#"))
    segments, end = list[Segment](), 0
    kinds = "".join(name[:1] or " " for _, name in pieces)
    # What would stay at the edges of a segment anyway is not part of it.
    for place in re.finditer(r"[^ |]([^|]*[^ |])?|\Z", kinds):
        before = "".join(sent for sent, _ in pieces[end : place.start()])
        end = place.end()
        segments.append(Segment(before, pieces[place.start() : end]))
    return segments


class _Reader(HTMLParser):
    """Finds where each piece of HTML begins, and what it is."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.starts, self.names = list[int](), list[str]()
        self._opened: list[int] = []  # Tags of inline elements, by number.
        self._inside: list[str] = []  # An element that is left alone.
        # In one line, columns count from the start. The other two are comments
        # to a browser; the parser skips one and may fail at the other.
        one_line = _ENDLESS.sub(" ", source.replace("\n", " "))
        self.feed(one_line.replace("</>", "<!>").replace("<![", "<! "))
        # A tag without an end makes all behind it one piece that is no text. If
        # closed, the parser would try it again and again.
        self._add("#")
        self._cut()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        # Of two with the same name, the first counts.
        values = {name: value or "" for name, value in reversed(attrs)}
        is_no = values.get("translate", "").lower() == "no"
        is_no |= "notranslate" in values.get("class", "").split()
        self._add(tag, is_no or tag in _LEFT_ALONE)

    def handle_endtag(self, tag: str) -> None:
        self._add(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self._add("#")

    def handle_comment(self, data: str) -> None:
        self._add("")

    handle_pi = handle_comment

    def handle_decl(self, decl: str) -> None:
        self._add("")

    def _add(self, name: str, is_alone: bool = False) -> None:
        inside, element = self._inside, name.strip("/")
        if inside and name not in _ENDS.get(inside[0], ()):
            if name == inside[0]:
                inside.append(name)
            elif name == f"/{inside[0]}":
                inside.pop()
            return
        is_void = element in _VOID
        self._inside = [name] if is_alone and not is_void else []
        # A word processor's own have a colon, and custom ones a hyphen.
        is_inline = element in _INLINE or bool({*"-:"} & {*element})
        if (is_void or is_alone) and is_inline:
            name = ""  # With nothing between tags, it opens nothing.
        number = len(self.names)
        self.starts.append(self.getpos()[1])
        self.names.append(name)
        if self._opened and name == f"/{self.names[self._opened[-1]]}":
            self._opened.pop()
        elif name not in ("", "#"):
            self._opened.append(number)
            if name != element or not is_inline or len(self._opened) > _DEPTH:
                self._cut()

    def _cut(self) -> None:
        # An element that goes on behind a border is one itself.
        for number in self._opened:
            self.names[number] = "|"
        self._opened.clear()


@dataclasses.dataclass(eq=False)
class _Element:
    """An element of a segment: its tags, and its place in the text."""

    before: list[str]  # A tag, and space where the text has one already.
    start: int
    end: int = 0
    at: int = 0  # The number of its first piece.
    after: list[str] = dataclasses.field(default_factory=list)
    children: list["_Element"] = dataclasses.field(default_factory=list)


class Segment:
    """Text and elements between two blocks, and what is before them."""

    def __init__(self, before: str, pieces: Sequence[Piece]) -> None:
        self.sent = before + "".join(sent for sent, _ in pieces)
        self._whole = _Element([before], 0)
        last, opened, text = list[str](), [self._whole], ""
        self._notes: set[int] = set()  # Where 2024<sup>1</sup> got a space.
        pairs = itertools.pairwise([*pieces, ("", " ")])
        for i, ((sent, name), (_, follows)) in enumerate(pairs):
            if name == " " and text[-1:] in ("", " "):
                last.append(sent)
            elif name in (" ", "#"):
                # White space between words is one space.
                word = _ENDLESS.sub("&amp;", name.replace("#", sent))
                word = _LINE_END.sub(" ", html.unescape(word))
                if text[-1:].isdigit() and word[:1].isdigit():
                    tags = [x.before[0] for x in opened if x.start == len(text)]
                    if any(map(_RAISED.match, tags)):  # No digit of that.
                        self._notes.add(len(text))
                        word = f" {word}"
                text += word
                last = []  # Takes a second space.
            elif name.startswith("/"):
                element = opened.pop()
                element.after = [sent]
                mark = _MARK.fullmatch(text, element.start)
                is_one = 1, _RAISED.match(element.before[0]), follows == " "
                if mark and is_one[mark.lastindex or 0]:
                    element.before = [x for x, _ in pieces[element.at : i + 1]]
                    element.after, element.children = [], []
                    text = text[: element.start]
                element.end = len(text)
                last = element.after if element.start == len(text) else last
            else:
                element = _Element([sent], len(text), at=i)
                opened[-1].children.append(element)
                last = element.before
                if name:
                    opened.append(element)
        self._whole.end, self.elements = len(text), self._whole.children
        self.text = "" if is_kept(text) else text  # To translate.

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
        # Of each word of the translation, its place and its source word's.
        self._words: list[tuple[Span, Span]] = []
        # Where sentences begin, and words begin and end: in the text, in the
        # words and in the translation.
        self._borders: list[tuple[int, int, int]] = [(0, 0, 0)]
        starts = [*itertools.accumulate(map(len, pieces))][::2]
        for each, at in zip(sentences, starts, strict=False):
            number = len(self._words)
            self._borders.append((each.span.start, number, at))
            source = _words(each.source, splitter.languages[0], each.span.start)
            target = _words(each.best, splitter.languages[1], at)
            origins = {i: origin for origin, i in each.links or ()}
            for i, word in enumerate(target):
                # Words without a link keep their order.
                origin = origins.get(i, i * len(source) // len(target))
                start, end = source[origin]
                self._words.append((word, source[origin]))
                self._borders.append((start, number + i, word.start))
                if end < each.span.end:
                    self._borders.append((end, number + i + 1, word.end))
            border = each.span.end, len(self._words), at + len(each.best)
            self._borders.append(border)
        self._borders.sort()
        words, inside = Span(0, len(self._words)), Span(0, len(self._target))
        return self._whole.before[0] + self._inner(self._whole, words, inside)

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
            gap = self._target[at:start]
            if child.start in self._notes and run.start < run.end:
                gap = gap.rstrip(" ")
            parts += html.escape(gap, False), *child.before
            parts += self._inner(child, run, Span(start, end)), *child.after
            at = end
        parts.append(html.escape(self._target[at : inside.end], False))
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
        text = self._target[start:end]
        if self.text.endswith(_SIGNS, 0, element.start):
            start = end - len(text.lstrip("".join(_SIGNS)))
        if self.text.startswith(_SIGNS, element.end):
            end -= len(text) - len(text.rstrip("".join(_SIGNS)))
        return Span(start, end)


def _words(text: str, language: str, at: int) -> list[Span]:
    return [Span(at + x, at + y) for x, y in words_of(text, language)]
