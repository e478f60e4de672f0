"""Translates the text of HTML and leaves its tags.

Python's parser finds where tags and texts begin; what is not text is copied as
it was sent. A segment is the text between two blocks, with the inline elements
that open and close in it. In the translation each element encloses the words
that the word links give to its words.

Code, the reading above a word and elements marked `translate="no"` come back
whole. Like an image, each has one place in its sentence; the model does not see
what is inside. All this takes time in proportion to the HTML.
"""

import bisect
import dataclasses
import html
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser

from keras_transformer.data.languages import words_of
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Sentence
from keras_transformer.serving.versions import card_of
from keras_transformer.translation.alignment import Links
from keras_transformer.translation.sentences import (
    Span,
    Splitter,
    is_kept,
    tag_of,
)

# The most characters of HTML in a request: a second's work, if all are tags.
MAX_HTML = 1 << 17

# Sentences go on across the borders of these, and of names with a hyphen.
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
_LINE_END = re.compile("[\t-\r\x85\u2028\u2029]")
_ENDLESS = re.compile(r"&(?=#\d{99})")
_SIGNS = (*string.punctuation, *"¡«»¿–—‘’‚“”„…‹›、。「」『』！（），：；？")

# What was sent, and what it is: a word (#), white space ( ), a tag (b or /b) or
# something else.
Piece = tuple[str, str]
# A sentence of a segment, with the result of `word_links`.
Linked = tuple[Sentence, Links | None]


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate whole pages of HTML or parts, as `Job.translate` does texts."""
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML"
        )
    pages: list[list] = await job.apart(list, map(read, texts))
    segments, tags = list[Segment](), list[str]()
    for page in pages:
        own = [part for part in page if isinstance(part, Segment)]
        segments += own
        # As in plain text, the tag of a whole goes before each of its parts.
        tags += [tag_of(each.text) for each in own[:1]] * len(own)
    translated = await job.search([x.text for x in segments], tags=tags)
    pairs = list(zip(segments, translated, strict=True))
    # Only elements ask which words belong together.
    linked = [y for x, sentences in pairs if x.has_elements for y in sentences]
    links = iter(await job.links(linked))
    splitter = card_of(job.model).splitter

    def put(segment: Segment, sentences: list[Sentence]) -> None:
        known = links if segment.has_elements else [None] * len(sentences)
        segment.put(list(zip(sentences, known, strict=False)), splitter)

    await job.apart(list, map(put, segments, translated))
    return [["".join(map(str, page))] for page in pages]


class _Reader(HTMLParser):
    """Cuts HTML into pieces, which together are the source.

    A tag without an end makes all behind it one piece that is not text.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._found: list[tuple[int, str]] = []  # Where pieces begin.
        self._inside: list[str] = []  # An element that is left alone.
        # In one line, columns count from the start. The other two are comments
        # to a browser; the parser skips one and may fail at the other.
        one_line = source.replace("\n", " ")
        one_line = _ENDLESS.sub(" ", one_line)
        self.feed(one_line.replace("</>", "<!>").replace("<![", "<! "))
        # What has no end. If closed, the parser would try it again and again.
        self._add("#")
        self.pieces: list[Piece] = []
        ends = [start for start, _ in self._found[1:]] + [len(source)]
        for (start, name), end in zip(self._found, ends, strict=True):
            piece = source[start:end]
            if name != "#" or re.match("<[a-zA-Z/!?]", piece):
                self.pieces.append((piece, name.strip("#")))
                continue
            for word in re.findall(f"[{_WHITE}]+|[^{_WHITE}]+", piece):
                self.pieces.append((word, " " if word[0] in _WHITE else "#"))

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
        inside = self._inside
        if inside and name not in _ENDS.get(inside[0], ()):
            if name == inside[0]:
                inside.append(name)
            elif name == f"/{inside[0]}":
                inside.pop()
            return
        is_void = name.strip("/") in _VOID
        self._inside = [name] if is_alone and not is_void else []
        if (is_void or is_alone) and _is_inline(name.strip("/")):
            name = ""  # With nothing between tags, it opens nothing.
        self._found.append((self.getpos()[1], name))


def _is_inline(name: str) -> bool:
    # A word processor's own have a colon, and custom ones a hyphen.
    return name in _INLINE or (name[0:1] != "/" and bool({*"-:"} & {*name}))


@dataclasses.dataclass(eq=False)
class _Element:
    """An element of a segment: tags, and places in its text.

    One without text is all in `before`, with a space that follows it where the
    text has one already.
    """

    before: str
    start: int
    end: int = 0
    after: str = ""
    children: list["_Element"] = dataclasses.field(default_factory=list)


class Segment:
    """Text and elements between two blocks."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        # As it was sent, or as it was translated.
        self._html = "".join(source for source, _ in pieces)
        self._whole = last = _Element("", 0)
        opened, texts, size = [last], [""], 0
        for source, name in pieces:
            if name == " " and texts[-1] in ("", " "):
                last.before += source
            elif name in (" ", "#"):
                # White space between words is one space.
                text = name.replace("#", source)
                text = html.unescape(_ENDLESS.sub("&amp;", text))
                texts.append(_LINE_END.sub(" ", text))
                size += len(texts[-1])
                last = _Element("", size)  # Takes a second space.
            elif not name.startswith("/"):
                last = _Element(source, size)
                opened[-1].children.append(last)
                if name:
                    opened.append(last)
            elif opened[-1].start < size:
                opened[-1].end = size
                opened.pop().after = source
            else:
                last = opened.pop()
                last.before += "".join(x.before for x in last.children) + source
                last.children = []
        self._whole.end = size
        self.text = "".join(texts)
        self.has_elements = bool(self._whole.children)

    def __str__(self) -> str:
        return self._html

    def put(self, sentences: Sequence[Linked], splitter: Splitter) -> None:
        """Replace the text by its sentences' translations, elements placed.

        Text that comes back unchanged stays as it was sent.
        """
        if all(self.text[slice(*x.span)] == x.best for x, _ in sentences):
            return
        spans = [each.span for each, _ in sentences]
        best = [each.best for each, _ in sentences]
        pieces = splitter.pieces(self.text, spans, best)
        self._target = "".join(pieces)
        # Of each word of the translation, its place and its source word's.
        self._words: list[tuple[Span, Span]] = []
        # Where sentences begin, and words begin and end: in the text, in the
        # words and in the translation.
        borders, at = list[tuple[int, int, int]](), len(pieces[0])
        for (each, links), gap in zip(sentences, pieces[2::2], strict=True):
            borders.append((each.span.start, len(self._words), at))
            source = _words(each.source, splitter.languages[0], each.span.start)
            target = _words(each.best, splitter.languages[1], at)
            # Words without a link keep their order.
            count = len(target)
            origins = [i * len(source) // count for i in range(count)]
            for origin, i in links or ():
                origins[i] = origin
            self._words += zip(
                target, [source[i] for i in origins], strict=True
            )
            at += len(each.best) + len(gap)
        for i, (word, source_word) in enumerate(self._words):
            borders.append((source_word.start, i, word.start))
            borders.append((source_word.end, i + 1, word.end))
        self._borders = sorted(borders)
        words = Span(0, len(self._words))
        self._html = self._inner(self._whole, words, Span(0, len(self._target)))

    def _inner(self, element: _Element, words: Span, inside: Span) -> str:
        """Write what is in an element: these words, these characters."""
        runs, placed = self._runs(element, words), []
        for child in element.children:
            if run := runs.get(child):
                placed.append((run, self._around(child, run), child))
                continue
            # Without words it goes to the next border of a word.
            i = bisect.bisect_left(self._borders, (child.start,))
            number, at = words.end, inside.end
            if i < len(self._borders) and self._borders[i][0] < element.end:
                _, number, at = self._borders[i]
            placed.append((Span(number, number), Span(at, at), child))
        parts, at = list[str](), inside.start
        for run, place, child in sorted(placed, key=lambda each: each[0]):
            start = min(max(at, place.start), inside.end)
            end = min(max(start, place.end), inside.end)
            parts += html.escape(self._target[at:start], False), child.before
            parts += self._inner(child, run, Span(start, end)), child.after
            at = end
        parts.append(html.escape(self._target[at : inside.end], False))
        return "".join(parts)

    def _runs(self, element: _Element, words: Span) -> dict[_Element, Span]:
        """Find for each child a run of words that mostly come from its own.

        Another word in a run costs as much as one of its own gains.
        """
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


def read(source: str) -> list[str | Segment]:
    """Read HTML, a whole page or a part: segments, and what is between them."""
    parts: list[str | Segment] = []
    pieces = [*_Reader(source).pieces, ("", "html")]
    sources = [x for x, _ in pieces]
    start, opened = 0, list[int]()
    # What would stay at the edges of a segment anyway is not part of it.
    kinds = "".join(name.strip()[:1] or " " for _, name in pieces)
    for i, (_, name) in enumerate(pieces):
        if kinds[i] in "# ":
            continue
        if opened and name == f"/{pieces[opened[-1]][1]}":
            opened.pop()
        elif _is_inline(name) and len(opened) < _DEPTH:
            opened.append(i)
        else:
            # An element that goes on behind a border is one itself.
            for border in [*opened, i]:
                part = kinds[start:border]
                first = start + len(part) - len(part.lstrip(" "))
                last = max(first, start + len(part.rstrip(" ")))
                segment = Segment(pieces[first:last])
                middle = str(segment) if is_kept(segment.text) else segment
                parts += [*sources[start:first], middle]
                parts += sources[last : border + 1]
                start = border + 1
            opened.clear()
    return parts


def _words(text: str, language: str, at: int) -> list[Span]:
    return [Span(at + x, at + y) for x, y in words_of(text, language)]
