"""Translates the text of HTML and leaves its tags.

HTML is read as tokens and never repaired: tags, comments, scripts and all else
that is not text are copied as they were sent. A segment is the text between two
blocks, with the inline elements that open and close in it. In the translation
each element encloses the words that the word links give to its words.

Code, the reading above a word and elements marked `translate="no"` come back
whole. Like an image, each has one place in its sentence; the model does not see
what is inside.
"""

import bisect
import dataclasses
import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keras_transformer.data.languages import language_of, words_of
from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Sentence
from keras_transformer.serving.versions import card_of
from keras_transformer.translation.alignment import Links
from keras_transformer.translation.sentences import Span, Splitter, tag_of

# The most characters of HTML in a request: reading and placing so many can take
# a second, if every other one is a tag.
MAX_HTML = 1 << 17

# No sentence crosses the border of one of these.
_BLOCKS = {
    *"""
    address article aside audio base blockquote body br button canvas caption
    center col colgroup dd details dialog dir div dl dt embed fieldset
    figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header
    hgroup hr html iframe legend li link main map menu meta nav noframes
    noscript object ol optgroup option p param picture pre search section
    select source summary table tbody td template tfoot th thead title tr track
    ul video xmp
    """.split()
}
_VOID = {
    *"area base br col embed hr img input link meta param source wbr".split()
}
# To a browser, all up to their own end tag is text.
_RAW = {*"iframe noembed noframes script style textarea title xmp".split()}
_LEFT_ALONE = _RAW - {"title"} | {
    *"code kbd math object pre rp rt samp svg".split()
}
# Before which of these an element is over, though it has no end tag.
_ENDS = {"p": ["p"], **dict.fromkeys(["rp", "rt"], ["rp", "rt", "/ruby"])}
_DEPTH = 64  # Of nested elements; elements further out are borders.

_WHITE = " \t\r\n\f"
_SPACE = re.compile(f"[{_WHITE}]+")
_ATTRIBUTE = (
    r"""([^\s/>][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s>]*)))?"""
)
# Section 13.2.5 of the HTML standard. What nothing ends is over at the end of
# the source, so each alternative that begins also matches: the time is linear.
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?=[^a-z]))[^>]*>?"
    rf"|<(?P<name>/?[a-z][^\s/>]*)(?:[\s/]+|{_ATTRIBUTE})*>?"
    rf"|(?P<word>[^<{_WHITE}]+|<)|[{_WHITE}]+",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
# Shorter than a number that Python refuses to read.
_REFERENCE = re.compile(r"&(?:#\d{1,99}|#x[\da-f]{1,99}|[a-z\d]{2,32});?", re.I)


async def translate_html(job: Job, texts: Sequence[str]) -> list[list[str]]:
    """Translate whole pages of HTML or parts, as `Job.translate` does texts."""
    size = sum(map(len, texts))
    if size > MAX_HTML:
        raise RefusalError(
            f"Invalid request: request ({size}) exceeds text limit "
            f"({MAX_HTML}) of HTML"
        )

    whole: list[Markup] = await job.apart(list, map(Markup, texts))
    segments = [segment for each in whole for segment in each.segments]
    # As in plain text, the tag of a whole text goes before each of its parts.
    tags = []
    for each in whole:
        first = each.segments[0].text if each.segments else ""
        tags += [tag_of(first)] * len(each.segments)
    found = await job.search([x.text for x in segments], tags=tags)
    with_elements = [
        sentence
        for segment, sentences in zip(segments, found, strict=True)
        for sentence in sentences
        if segment.has_elements
    ]
    links = iter(await job.links(with_elements))
    splitter = card_of(job.model).splitter

    def put(segment: Segment, sentences: Sequence[Sentence]) -> None:
        parts = []
        for each in sentences:
            of_each = next(links) if segment.has_elements else None
            parts.append(Part(each.span, each.best, of_each))
        segment.put(parts, splitter)

    await job.apart(list, map(put, segments, found))
    return [[each.html()] for each in whole]


class Part(NamedTuple):
    """A sentence of a segment's text, with the result of `word_links`."""

    span: Span
    translation: str
    links: Links | None


class _Token(NamedTuple):
    """A piece of the source: a word (#), a tag (b or /b) or other ("")."""

    source: str
    name: str


@dataclasses.dataclass
class _Inline:
    """An element in a segment: tags, and places in its text.

    One without text is all in `before`. The text has no part of `space`, which
    follows `before`: it has a space already.
    """

    before: str
    start: int
    end: int
    after: str = ""
    space: str = ""
    children: list["_Inline"] = dataclasses.field(default_factory=list)


class Segment:
    """Text and elements between two blocks."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        # As it was sent, or as it was translated.
        self.html = "".join(token.source for token in tokens)
        self._whole = last = _Inline("", 0, 0)
        opened = [last]
        texts = [""]
        size = 0
        for source, name in tokens:
            is_space = not source.strip(_WHITE)
            if is_space and texts[-1] in ("", " "):
                last.space += source
            elif is_space or name == "#":
                text = _REFERENCE.sub(lambda x: html.unescape(x[0]), source)
                texts.append(_SPACE.sub(" ", text))
                size += len(texts[-1])
                last = _Inline("", size, size)
            elif not name.startswith("/"):
                last = _Inline(source, size, size)
                opened[-1].children.append(last)
                if name:
                    opened.append(last)
            elif opened[-1].start < size:
                opened[-1].end = size
                opened.pop().after = source
            else:
                last = opened.pop()
                inner = [each.before + each.space for each in last.children]
                last.before += last.space + "".join(inner) + source
                last.space, last.children = "", []
        self._whole.end = size
        self.text = "".join(texts)
        self.has_elements = bool(self._whole.children)

    def put(self, parts: Sequence[Part], splitter: Splitter) -> None:
        """Replace the text by its sentences' translations, elements placed.

        Text that comes back unchanged stays as it was sent.
        """
        if any(self.text[slice(*x.span)] != x.translation for x in parts):
            placing = _Placing(self.text, parts, splitter)
            self.html = placing.content(self._whole, *placing.everything)


class Markup:
    """HTML to translate, a whole page or a part; its segments have text."""

    def __init__(self, source: str) -> None:
        self._parts: list[str | Segment] = []
        # The last is the border at the end.
        tokens = [*_joined(list(_tokens(source))), _Token("", "html")]
        start = 0
        opened: list[int] = []
        for i, (_, name) in enumerate(tokens):
            if name in ("", "#"):
                continue
            if opened and name == f"/{tokens[opened[-1]].name}":
                opened.pop()
            elif name in _BLOCKS or name[0] == "/" or len(opened) == _DEPTH:
                # An element that goes on behind a border is one itself.
                for border in [*opened, i]:
                    self._add(tokens[start:border])
                    self._parts.append(tokens[border].source)
                    start = border + 1
                opened.clear()
            else:
                opened.append(i)
        found = [each for each in self._parts if isinstance(each, Segment)]
        self.segments = [each for each in found if each.text.strip()]

    def html(self) -> str:
        """Write the whole."""
        return "".join(
            each if isinstance(each, str) else each.html for each in self._parts
        )

    def _add(self, tokens: Sequence[_Token]) -> None:
        """Add a segment, without what would stay at its edges anyway."""
        named = [i for i, token in enumerate(tokens) if token.name]
        start, end = (named[0], named[-1] + 1) if named else (0, 0)
        sources = [token.source for token in tokens]
        segment = Segment(tokens[start:end])
        self._parts += [*sources[:start], segment, *sources[end:]]


def _tokens(source: str) -> Iterator[_Token]:
    position = 0
    while found := _TOKEN.match(source, position):
        position = found.end()
        name = "#" if found["word"] else (found["name"] or "").lower()
        yield _Token(found[0], name)
        if name in _RAW:
            end_tag = re.compile(rf"</{name}(?=[\s/>])", re.I | re.ASCII)
            end = end_tag.search(source, position)
            inner = source[position : end and end.start()]
            position += len(inner)
            is_text = name == "title" and inner.strip()
            yield _Token(inner, "#" if is_text else "")


def _joined(tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Make one token of each element that is left alone."""
    at = 0
    while at < len(tokens):
        source, name = tokens[at]
        end = at + 1
        if name in _VOID or _is_left_alone(source, name):
            depth = int(name not in _VOID and not source.endswith("/>"))
            while depth and end < len(tokens):
                if tokens[end].name in _ENDS.get(name, ()):
                    break
                depth += tokens[end].name == name
                depth -= tokens[end].name == f"/{name}"
                end += 1
            source = "".join(token.source for token in tokens[at:end])
            name = name if name in _BLOCKS else ""
        yield _Token(source, name)
        at = end


def _is_left_alone(source: str, name: str) -> bool:
    if name in _LEFT_ALONE:
        return True
    if name in ("", "#") or "translate" not in source.lower():
        return False
    found = re.findall(_ATTRIBUTE, source[len(name) + 1 :], re.ASCII)
    # Of two with the same name, the first counts.
    values = {key.lower(): "".join(value) for key, *value in reversed(found)}
    is_no = values.get("translate", "").lower() == "no"
    return is_no or "notranslate" in values.get("class", "").split()


class _Placing:
    """Places of a segment's elements: numbers of words in its translation."""

    def __init__(
        self, text: str, parts: Sequence[Part], splitter: Splitter
    ) -> None:
        self._text = text
        languages = splitter.languages
        self._has_spaces = language_of(languages[1]).has_spaces
        spans, translations, _ = zip(*parts, strict=True)
        found = splitter.pieces(text, spans, translations)
        self._target = "".join(found)
        self._source_words: list[Span] = []
        self._target_words: list[Span] = []
        # The source word that each word of the translation comes from.
        self._origins: list[int] = []
        firsts: dict[int, int] = {}  # Of sentences: places by source words.
        position = len(found[0])
        for part, gap in zip(parts, found[2::2], strict=True):
            before = len(self._source_words)
            source = _words(text[slice(*part.span)], languages[0], part.span[0])
            target = _words(part.translation, languages[1], position)
            # Words without a link keep their order.
            count = len(target)
            origins = [i * len(source) // count for i in range(count)]
            for origin, i in part.links or ():
                origins[i] = origin
            firsts[before] = len(self._target_words)
            self._origins += [before + origin for origin in origins]
            self._source_words += source
            self._target_words += target
            position += len(part.translation) + len(gap)
        self.everything = Span(0, len(self._target_words)), Span(0, position)
        self._starts = [word.start for word in self._source_words]
        self._ends = [word.end for word in self._source_words]
        # From the first to the last place that comes from each source word.
        count, end = len(self._source_words), len(self._target_words)
        self._reach = [Span(end, 0)] * (count + 1)
        for place, origin in enumerate(self._origins):
            start = min(place, self._reach[origin].start)
            self._reach[origin] = Span(start, place + 1)
        # Where each source word begins, or else what follows it.
        self._begins = [end] * (count + 1)
        for origin in reversed(range(count)):
            start, end = self._reach[origin]
            following = start if end else self._begins[origin + 1]
            self._begins[origin] = firsts.get(origin, following)

    def content(self, element: _Inline, places: Span, inside: Span) -> str:
        """Fill an element that has been given these places and characters."""
        found: list[str] = []
        position = inside.start
        for child, of_child in self._placed(element, places):
            outside = self._characters(child, of_child)
            start = min(max(position, outside.start), inside.end)
            end = min(max(start, outside.end), inside.end)
            found.append(html.escape(self._target[position:start], False))
            opening = [child.before, child.space if self._has_spaces else ""]
            found += reversed(opening) if start == inside.end else opening
            found.append(self.content(child, of_child, Span(start, end)))
            found.append(child.after)
            position = end
        found.append(html.escape(self._target[position : inside.end], False))
        return "".join(found)

    def _placed(
        self, element: _Inline, places: Span
    ) -> list[tuple[_Inline, Span]]:
        """Return the children in order, each with its own places."""
        origins = self._origins_of(element)
        found: list[tuple[_Inline, Span]] = []
        free = [True] * (places.end - places.start)
        for child in element.children:
            of_child = self._origins_of(child)
            if of_child == origins and all(free):
                best = places
            else:
                best = self._run(of_child, places, free) or self._point(
                    child, origins.end, places
                )
            for place in range(*best):
                free[place - places.start] = False
            found.append((child, best))
        return sorted(found, key=lambda each: each[1])

    def _origins_of(self, element: _Inline) -> Span:
        """List the source words that an element encloses, even in part."""
        start = bisect.bisect_right(self._ends, element.start)
        if element.start == element.end:
            return Span(start, start)
        return Span(start, bisect.bisect_left(self._starts, element.end))

    def _run(
        self, origins: Span, places: Span, free: Sequence[bool]
    ) -> Span | None:
        """Find a run of words that mostly come from these source words.

        A word that comes from elsewhere costs as much as one of theirs gains.
        """
        reach = self._reach[slice(*origins)]
        first = max(places.start, min((x.start for x in reach), default=0))
        last = min(places.end, max((x.end for x in reach), default=0))
        best, best_gain, start, gain = None, 0, first, 0
        for place in range(first, last):
            is_free = free[place - places.start]
            is_own = origins.start <= self._origins[place] < origins.end
            gain += 1 if is_own else -1
            if not is_free or gain <= 0:
                start, gain = place + 1, 0
            elif gain > best_gain:
                best, best_gain = Span(start, place + 1), gain
        return best

    def _point(self, element: _Inline, end: int, places: Span) -> Span:
        """Find a place without words: after a source word, or before one."""
        origin = self._origins_of(element).start
        place = self._begins[origin] if origin < end else places.end
        if self._is_behind(element):
            word = bisect.bisect_left(self._starts, element.start) - 1
            place = self._reach[word].end or place
        place = min(max(places.start, place), places.end)
        return Span(place, place)

    def _characters(self, element: _Inline, places: Span) -> Span:
        """Return the characters of the translation that an element encloses.

        A comma that it excludes in the source it excludes here.
        """
        if places.start == places.end:
            at = len(self._target)
            if places.start and self._is_behind(element):
                at = self._target_words[places.start - 1].end
            elif places.start < len(self._target_words):
                at = self._target_words[places.start].start
            return Span(at, at)
        start = self._target_words[places.start].start
        end = self._target_words[places.end - 1].end
        origins = self._origins_of(element)
        first = self._source_words[origins.start]
        last = self._source_words[origins.end - 1]
        if _is_signs(self._text[first.start : element.start]):
            start += _signs(self._target[start:end])
        if _is_signs(self._text[element.end : last.end]):
            end -= _signs(self._target[start:end][::-1])
        if self._text[element.end - 1] == self._target[end : end + 1] == " ":
            end += 1
        return Span(start, end)

    def _is_behind(self, element: _Inline) -> bool:
        """Return whether it belongs behind the part of a word before it."""
        at = element.start
        if self._text[at - 1 : at] in ("", " "):
            return False
        return at < element.end or not _is_of_word(self._text[at : at + 1])


def _words(text: str, language: str, at: int) -> list[Span]:
    return [Span(at + x, at + y) for x, y in words_of(text, language)]


def _signs(text: str) -> int:
    """Count the signs that a text begins with; 0 if it has nothing else."""
    return next((i for i, each in enumerate(text) if _is_of_word(each)), 0)


def _is_signs(text: str) -> bool:
    return bool(text) and not any(map(_is_of_word, text))


def _is_of_word(character: str) -> bool:
    """Whether it is a letter, a digit, or a mark that belongs to one."""
    # At the end of a text there is none.
    return unicodedata.category(character or " ")[0] in "LMN"
