"""Takes the text out of HTML, and puts its translation back between the tags.

A segment lies between two blocks. It is text with the elements inside it, such
as links and bold words. In the translation each element encloses the words that
come from its own words, by word links; all are kept, nested as they were.

Scripts, code and elements marked `translate="no"` stay as they are. Entities
are read as characters and written as HTML needs them; attributes are not
translated.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import lxml.etree
import lxml.html

from keras_transformer.serving.limits import RefusalError
from keras_transformer.translation.sentences import Span, pieces

# No sentence crosses the border of one of these.
_BLOCKS = frozenset(
    """
    address article aside audio blockquote body br button canvas caption center
    col colgroup dd details dialog dir div dl dt embed fieldset figcaption
    figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr
    html iframe legend li link main map menu meta nav noframes noscript object
    ol optgroup option p param picture pre search section select summary table
    tbody td template textarea tfoot th thead title tr track ul video
    """.split()
)
_LEFT_ALONE = frozenset(
    "code embed iframe kbd math object samp script style svg textarea".split()
)
_SPACE = re.compile(r"[ \t\r\n\f]+")
# Characters that XML, and therefore lxml, cannot hold.
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Part(NamedTuple):
    """A sentence of a segment with its translation.

    Attributes:
        span: Its place in the text of the segment.
        translation: Its translation.
        links: Pairs (source word, target word), counted from 0 in the span;
            None if they are not known.
    """

    span: Span
    translation: str
    links: Sequence[tuple[int, int]] | None


class _Inline(NamedTuple):
    """An element inside a segment, and the text that it encloses."""

    node: Any
    start: int
    end: int
    children: list["_Inline"]


class Segment:
    """Text and elements between two blocks.

    Attributes:
        text: The text to translate.
        has_elements: Whether it has elements to place.
    """

    def __init__(self, block: Any, before: Any, nodes: list[Any]) -> None:
        self._block, self._before = block, before
        self._keeps_space = block.tag == "pre"
        self.text = ""
        self._read(block.text if before is None else before.tail)
        self._elements = [self._inline(node) for node in nodes]
        self.has_elements = bool(nodes)

    def put(self, parts: Sequence[Part], target_lang: str) -> None:
        """Replace the text by its sentences' translations, elements placed."""
        placing = _Placing(self.text, parts, target_lang)
        content = placing.content(self._elements)
        for element in self._elements:
            self._block.remove(element.node)
        if self._before is None:
            self._block.text = ""
        else:
            self._before.tail = ""
        _fill(self._block, self._before, content)

    def _inline(self, node: Any) -> _Inline:
        start, children = len(self.text), []
        if isinstance(node.tag, str):  # A comment's text is not for readers.
            self._read(node.text)
            children = [self._inline(child) for child in node]
        found = _Inline(node, start, len(self.text), children)
        self._read(node.tail)
        return found

    def _read(self, text: str | None) -> None:
        text = text or ""
        if not self._keeps_space:
            text = _SPACE.sub(" ", text)
            if self.text.endswith(" "):
                text = text.removeprefix(" ")
        self.text += text


class Page:
    """HTML to translate, a whole page or a part of one.

    Attributes:
        segments: The segments with text, in order.

    Raises:
        RefusalError: If it is empty, or lxml would read only a part of it.
    """

    def __init__(self, html: str) -> None:
        parser = lxml.html.HTMLParser(encoding="utf-8")
        self._is_whole = bool(re.match(r"\s*<(!doctype|html)\b", html, re.I))
        source = _CONTROL.sub("", html).encode()
        try:
            if self._is_whole:
                self._root = lxml.html.document_fromstring(
                    source, parser=parser
                )
            else:
                self._root = lxml.html.fragment_fromstring(
                    source, create_parent="div", parser=parser
                )
        except lxml.etree.LxmlError:
            raise RefusalError(
                400, "Expected HTML, received no element and no text."
            ) from None
        if parser.error_log.filter_from_fatals():
            raise RefusalError(
                400,
                "Expected HTML with at most 250 elements inside each other, "
                "received more or other HTML that cannot be read to its end.",
            )
        self.segments = [
            segment for segment in self._found() if segment.text.strip()
        ]

    def html(self) -> str:
        """Write the page as HTML."""
        tree = self._root.getroottree() if self._is_whole else self._root
        source: str = lxml.etree.tostring(
            tree, encoding="unicode", method="html"
        )
        if self._is_whole:
            return source
        return source.removeprefix("<div>").removesuffix("</div>")

    def _found(self) -> Iterator[Segment]:
        inline: set[Any] = set()
        # Children come before their parents.
        for node in reversed(list(self._root.iter())):
            is_block = node.tag in _BLOCKS or _is_left_alone(node)
            if not is_block and all(child in inline for child in node):
                inline.add(node)
        inline.discard(self._root)
        blocks = [self._root]
        while blocks:
            block = blocks.pop()
            before, run, inner = None, [], []
            for child in [*block, None]:
                if child in inline:
                    run.append(child)
                    continue
                yield Segment(block, before, run)
                before, run = child, []
                if child is not None and not _is_left_alone(child):
                    inner.append(child)
            blocks += reversed(inner)


def _is_left_alone(node: Any) -> bool:
    return (
        node.tag in _LEFT_ALONE
        # Comments have no attributes.
        or (node.get("translate") or "").lower() == "no"
        or "notranslate" in (node.get("class") or "").split()
    )


class _Placing:
    """The places of a segment's elements in its translation.

    `str.split` finds the words; a place is the number of a word in the
    translation.
    """

    def __init__(
        self, text: str, parts: Sequence[Part], target_lang: str
    ) -> None:
        self._text = text
        found = pieces(
            text,
            [part.span for part in parts],
            [_CONTROL.sub("", part.translation) for part in parts],
            target_lang,
        )
        self._target = "".join(found)
        self._source_words: list[Span] = []
        self._target_words: list[Span] = []
        # The source word that each word of the translation comes from.
        self._origins: list[int] = []
        # The first and the last place that come from each source word.
        self._reach: list[Span] = []
        # The place where each sentence begins, by its first source word.
        self._begins: dict[int, int] = {}
        position = len(found[0])
        for part, translation, gap in zip(
            parts, found[1::2], found[2::2], strict=True
        ):
            self._add_words(part, translation, position)
            position += len(translation) + len(gap)

    def _add_words(self, part: Part, translation: str, position: int) -> None:
        source = _words(self._text[slice(*part.span)], part.span.start)
        target = _words(translation, position)
        before = len(self._source_words)
        # Words without a link keep their order.
        origins = {
            i: i * len(source) // len(target) for i in range(len(target))
        }
        origins |= {to: origin for origin, to in part.links or ()}
        self._origins += [before + origins[i] for i in range(len(target))]
        first = self._begins[before] = len(self._target_words)
        reach = [Span(first + len(target), first)] * len(source)
        for i in range(len(target)):
            start, end = reach[origins[i]]
            reach[origins[i]] = Span(
                min(start, first + i), max(end, first + i + 1)
            )
        self._reach += reach
        self._source_words += source
        self._target_words += target

    def content(self, elements: Iterable[_Inline]) -> list[Any]:
        """Return the translation as texts and pairs (node, its content)."""
        every = _Inline(None, 0, len(self._text), list(elements))
        places = Span(0, len(self._target_words))
        return self._content(every, places, Span(0, len(self._target)))

    def _content(
        self, element: _Inline, places: Span, inside: Span
    ) -> list[Any]:
        """Fill an element that has been given these places and characters."""
        found: list[Any] = []
        position = inside.start
        for child, of_child in self._placed(element, places):
            outside = self._characters(child, of_child, inside)
            if of_child.end == places.start:
                outside = Span(inside.start, inside.start)
            start = max(position, outside.start)
            end = max(start, outside.end)
            found.append(self._target[position:start])
            within = self._content(child, of_child, Span(start, end))
            found.append((child.node, within))
            position = end
        found.append(self._target[position : inside.end])
        return found

    def _placed(
        self, element: _Inline, places: Span
    ) -> list[tuple[_Inline, Span]]:
        """Return the children in order, each with its own places."""
        origins = self._origins_of(element)
        found: list[tuple[_Inline, Span]] = []
        best: Span | None
        free = [True] * (places.end - places.start)
        for child in element.children:
            of_child = self._origins_of(child)
            if of_child == origins and all(free):
                best = places
            elif not (best := self._run(of_child, places, free)):
                point = self._point(of_child.start, origins, places, free)
                best = Span(point, point)
            for place in range(*best):
                free[place - places.start] = False
            found.append((child, best))
        return sorted(found, key=lambda each: each[1])

    def _origins_of(self, element: _Inline) -> Span:
        """List the source words that an element encloses, even in part."""
        start = bisect.bisect_right(
            self._source_words, element.start, key=lambda word: word.end
        )
        end = bisect.bisect_left(
            self._source_words, element.end, key=lambda word: word.start
        )
        return Span(start, max(start, end))

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

    def _point(
        self, origin: int, around: Span, places: Span, free: Sequence[bool]
    ) -> int:
        """Find a place for an empty element: before the next source word."""
        if origin <= around.start:
            return places.start
        if origin >= around.end:
            return places.end
        # If nothing comes from a word, take the next one.
        after = (start for start, end in self._reach[origin:] if start < end)
        place = self._begins.get(origin, next(after, places.end))
        place = min(max(places.start, place), places.end)
        # Not in the middle of another element.
        while places.start < place < places.end and not (
            free[place - places.start] or free[place - places.start - 1]
        ):
            place += 1
        return place

    def _characters(self, element: _Inline, places: Span, inside: Span) -> Span:
        """Return the characters of the translation that an element encloses.

        A comma that it excludes in the source it excludes here.
        """
        if places.start == places.end:
            at = inside.end
            if places.start < len(self._target_words):
                at = min(at, self._target_words[places.start].start)
            return Span(at, at)
        start = self._target_words[places.start].start
        end = self._target_words[places.end - 1].end
        origins = self._origins_of(element)
        first = self._source_words[origins.start]
        last = self._source_words[origins.end - 1]
        if _is_sign(self._text[first.start : element.start]):
            start += _signs(self._target[start:end])
        if _is_sign(self._text[element.end : last.end]):
            end -= _signs(self._target[start:end][::-1])
        return Span(max(start, inside.start), min(end, inside.end))


def _words(text: str, offset: int) -> list[Span]:
    return [
        Span(offset + found.start(), offset + found.end())
        for found in re.finditer(r"\S+", text)
    ]


def _is_sign(text: str) -> bool:
    return bool(text) and not any(map(str.isalnum, text))


def _signs(text: str) -> int:
    """Count the signs that a text begins with; 0 if it has nothing else."""
    return next((i for i, each in enumerate(text) if each.isalnum()), 0)


def _fill(parent: Any, before: Any, content: Iterable[Any]) -> None:
    """Put texts and nodes into a node, after one of its children or first."""
    for each in content:
        if isinstance(each, str):
            if before is None:
                parent.text = (parent.text or "") + each
            else:
                before.tail = (before.tail or "") + each
            continue
        node, inner = each
        node.tail = None
        if isinstance(node.tag, str):
            node.text = None
            for child in list(node):
                node.remove(child)
            _fill(node, None, inner)
        if before is None:
            parent.insert(0, node)
        else:
            before.addnext(node)  # And after its tail.
        before = node
