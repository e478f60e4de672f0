"""Translates the text of HTML and leaves its tags.

Python's parser finds where tags and texts begin; what is not text is copied as
it was sent. A segment is the text between two blocks or borders. In the
translation each element encloses the words that the links give to its words.

Code and elements marked `translate="no"` come back whole: a model that knows
marks gets a mark in their place. Without one they have one place in their
sentence, as images have. All this takes time in proportion to the HTML.
"""

import bisect
import dataclasses
import html
import itertools
import os
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser

from keras_transformer.data.languages import language_of, words_of
from keras_transformer.data.pieces import KEPT
from keras_transformer.translation.alignment import Links
from keras_transformer.translation.sentences import (
    Sentence,
    Span,
    Splitter,
    is_kept,
)

# Kind, tag and what was sent. The kind is a text (#), code (=), a start and an
# end tag, "(" and ")", a border (|) or what has one place (.).
Part = tuple[str, str, str]

# What is no phrasing content in HTML's standard or no text of its sentence.
_BLOCKS = {
    *"""
    address article aside audio blockquote body br button canvas caption center
    col colgroup dd details dialog dir div dl dt fieldset figcaption figure
    footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html
    label legend li listing main menu nav noframes noscript ol optgroup option p
    plaintext pre search section summary table tbody td template tfoot th thead
    title tr ul video xmp
    """.split()
}
_VOID = {
    *"area base br embed hr img input link meta param source track wbr".split()
}
# Come back whole, and say nothing.
_UNSEEN = {
    *"""
    iframe math noembed noframes object pre rp rt script style svg textarea xmp
    """.split()
}
_TIGHT = {"", "rp", "rt", "wbr"}  # Need no space; "" is a comment.
# What ends these without an end tag; what is no block else ends at blocks.
_RUBY = {"rp", "rt", "ruby"}
_STOPS = {"p": {"p"}, "rp": _RUBY, "rt": _RUBY}
_DEPTH = 32  # Of nested elements; those further in enclose nothing.
_WHITE = " \t\r\n\f"
# Before a number of so many digits that Python reads it slowly or not at all.
_ENDLESS = re.compile(r"&(?=#\d{99})")
_LINE_END = re.compile("[\t-\r\x85\u2028\u2029]")
# A line that Chinese or Japanese goes on from: CSS advises no space for it.
_WIDE = "[\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff9f𠀀-\U0003ffff]"
_WRAP = re.compile(rf"(?<={_WIDE})[ \t]{{,99}}\r?\n[ \t]{{,99}}(?={_WIDE})")
# Like an image: elements of signs or of nothing, raised signs, digits, letters.
_SYMBOLS = re.compile(
    r"[#*§¶†‡※®©™\ufe0f\u2190-\u2bff\ue000-\uf8ff\U0001f000-\U0001faff«»‹›×+^[\]]*"
)
_RAISED = re.compile(
    r"\[.{1,30}\]|[\W\d_]{,30}"
    r"|(?:(?<!.)a|(?<=[^\W\d]{2})[a-df-n]|(?<=[a-z][.!?])[a-df-n]"
    r"|(?<=\d)[b-df-n])(?:, ?[a-z\d]){,9}"
)
_SIGNS = re.sub("[{}]", "", string.punctuation)  # Braces are those of marks.
_SIGNS += "¡«»¿–—‘’‚“”„…‹›、。「」『』！（），：；？।॥،؛؟۔"
_CLOSERS = "\"').,:;!?]»’”…。、！），：；？"
_BEHIND = re.compile(rf"[{re.escape(_CLOSERS)}][{re.escape(_CLOSERS)}\s]*|")
_ASCII = str.maketrans("。、！），：；？", ".,!),:;?")
_WORD = re.compile(r"[^\W_]+")
_SAYING = re.compile(r">\s*[^<\s]")  # In an element that says something.
# A text ends between two links in a row or in two lines, but not in Chinese or
# Thai, and where only style keeps two apart: "<b>Monday</b><b>9 a.m.</b>".
_APART = re.compile(
    "[!-\u0dff\u1e00-\u2bff](?: ?\r?\n[ \t]*)?</[aA]>"
    r"(?:[ \t\r]*\n\s*)?(?=<[aA]\b(?![^<>]*>(?:\s|</[aA]|<su)))"
    r"|</(?:span|a)>\s*(?=<(?:span|a)\b[^<>]*>\s*<i\b[^<>]*></i>\s*[^<\s])"
    r"|(?:(?<=[a-zß-ɏα-џ]{2})|(?<=[:!?%€)…])|(?<=&hellip;)|((?<=\d)))"
    r"(?:(?:</(?!su)\w+>)+(?!</)|(?=<\w))(?=(?:<(?!/?su|wbr)[\w/][^<>]*>)*"
    r"(?:[A-ZÀ-ÞĀ-ɏΑ-ΩЀ-Я](?(1)[a-zß-ɏα-џ])|[$€£] ?\d"
    r"|(?(1)(?!)|\d(?!\d?\d?</\w+>\s*[^<\s]))"
    r"|<(?!/|su|wbr)[^<>]*>[(\[](?!(?:\w\w?|\d+)[)\]]"
    r"|[^<>]*(?:</\w+>)+[\s,;.]*[a-z])))"
)
# A sign alone between two tags ends it too, and others between two links.
_SIGN = r"\s*(?:[|·•›>→]|&(?:middot|bull|gt|rsaquo|rarr);)\s*"
_BETWEEN = re.compile(r"(?<=>)\s*(?:[|·•]|&(?:middot|bull);)\s*(?=<)")
_CRUMB = re.compile(
    rf"(?<=</a>)(?:{_SIGN}|\s+/\s+|\s*(?:»|&raquo;|<(?!su)(\w+)\b[^<>]*>"
    rf"(?:{_SIGN}|»|&raquo;)</\1>|<i\b[^<>]*></i>)\s*)(?=<a\b)"
    r"|(?<=</a>)\s*(?=(?:[›→]|&(?:gt|rsaquo|rarr);)\s)|(?<=</a>)\s*"
    r"<i\b(?=[^<>]*(?:chevron|angle|caret|divider))[^<>]*></i>\s*(?=[A-Z])"
)
_END = re.compile(r"[.!?…]+(?=\W*(?:\s|$))|[。！？]")  # Perhaps of a sentence.
# What stands for code, where a model marks what is in braces.
_STAND_IN = re.compile(r"( ?)\{KT(\d+)\}")


def with_symbols(text: str) -> str:
    """Write what a model that knows marks reads and writes for code."""
    return _STAND_IN.sub(lambda x: x[1] + KEPT[int(x[2]) % len(KEPT)], text)


class _Reader(HTMLParser):
    """Finds where each part of HTML begins, its kind and its tag."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.parts = list[tuple[int, str, str]]()
        # How deep we are in a part that comes back whole, and what ends it.
        self._depth, self._stops = 0, set[str]()
        # In one line, columns count from the start. The other two are comments
        # to a browser; the parser skips one and may fail at the other.
        one_line = _ENDLESS.sub(" ", source.replace("\n", " "))
        self.feed(one_line.replace("</>", "<!>").replace("<![", "<! "))
        # A tag without an end is no text. If closed, the parser would try it
        # again and again.
        left = source[self.getpos()[1] :][:2]
        self._add("." if re.match("<[a-zA-Z/!?]", left) else "#")

    def handle_starttag(self, tag: str, attrs: list) -> None:
        # Of two with the same name, the first counts.
        values = {name: value or "" for name, value in reversed(attrs)}
        is_code = tag in ("code", "kbd", "samp")
        is_code |= values.get("translate", "").lower() == "no"
        is_code |= "notranslate" in values.get("class", "").split()
        kind = "." if tag in _UNSEEN | _VOID else "=" if is_code else "("
        if self._add(kind, tag) and kind != "(" and tag not in _VOID:
            is_closed = tag in _UNSEEN or tag in _BLOCKS
            stops = set() if is_closed else _BLOCKS - {"br"}
            self._depth, self._stops = 1, _STOPS.get(tag, stops)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID or self.parts[-1][0] < self.getpos()[1]:
            self._add(")", tag)  # Not the end of "<br/>".

    def handle_data(self, data: str) -> None:
        self._add("#")

    def handle_comment(self, data: str) -> None:
        self._add(".")

    handle_pi = handle_decl = handle_comment  # type: ignore[assignment]

    def _add(self, kind: str, tag: str = "") -> bool:
        """Add a part, unless it belongs to the last one."""
        if self._depth and tag not in self._stops:
            if tag == self.parts[-1][2]:
                self._depth += -1 if kind == ")" else 1
            return False
        self._depth = 0
        start = self.getpos()[1]
        self.parts.append((start, "|" if tag in _BLOCKS else kind, tag))
        return True


def read(source: str, has_marks: bool = False) -> list["Segment"]:
    """Read HTML, a whole page or a part."""
    found, segments = _Reader(source).parts, list[list[Part]]([[]])
    ends = [*(start for start, _, _ in found[1:]), len(source)]
    apart = {border.end() for border in _APART.finditer(source)}
    apart.update(*(border.span() for border in _BETWEEN.finditer(source)))
    crumbs, first = dict(x.span() for x in _CRUMB.finditer(source)), ""
    for (start, kind, tag), end in zip(found, ends, strict=True):
        if start in crumbs and first == "a":  # Not in "Go to <a>A</a> > …".
            apart |= {start, crumbs[start]}
        if kind == "|" or (kind != "=" and start in apart):
            segments.append([])
            first = ""
        segments[-1].append((kind, tag, source[start:end]))
        if tag == "a" or kind == "#":
            first = first or tag or source[start:end].strip()
    return [Segment(parts, has_marks) for parts in segments]


def _paired(parts: Sequence[Part]) -> set[int]:
    """Find the numbers of start and end tags that belong together."""
    waiting, paired = list[tuple[str, int]](), set[int]()
    for number, (kind, tag, _) in enumerate(parts):
        if kind == "(" and len(waiting) < _DEPTH:
            waiting.append((tag, number))
        elif kind == ")" and tag in (names := [name for name, _ in waiting]):
            while names.pop() != tag:  # It has no end, or one too late.
                waiting.pop()
            paired |= {waiting.pop()[1], number}
    return paired


@dataclasses.dataclass(eq=False)
class _Element:
    """An element of a segment: its tags, and its place in the text."""

    opening: str
    number: int = 0  # Of its first part.
    start: int = 0
    end: int = 0  # 0 if it encloses nothing.
    closing: str = ""
    code: str = ""  # The number of the mark in its place.
    is_shown: bool = False  # As an image is: it stands between spaces.
    has_words: bool = False
    children: list["_Element"] = dataclasses.field(default_factory=list)


class Segment:
    """A border, and the text and elements up to the next one."""

    def __init__(self, parts: Sequence[Part], has_marks: bool) -> None:
        self.sent = "".join(sent for _, _, sent in parts)
        self.has_elements = len(parts) > 2  # A border and a text are two.
        self._whole = last = _Element("")
        self._codes = dict[str, str]()
        paired, opened, text, tail = _paired(parts), [self._whole], "", ""
        none, left = _Element(""), len(KEPT)  # A sentence has so many marks.
        for number, (kind, tag, sent) in enumerate(parts):
            if kind == "#":
                said = _WRAP.sub("", text[-1:] + sent)[len(text[-1:]) :]
                said = re.sub(f"[{_WHITE}]+", " ", said)
                said = html.unescape(_ENDLESS.sub("&amp;", said))
                said = _LINE_END.sub(" ", said)
                if said[:1] == " " and text[-1:] in ("", " "):
                    # A second space goes to the tag before it, or is none.
                    space = sent[: len(sent) - len(sent.lstrip(_WHITE))]
                    side = "closing" if last.closing else "opening"
                    setattr(last, side, getattr(last, side) + space)
                    tail, said = space * (last is none), said[1:]
                if said:
                    text, tail = text + said, sent[len(sent.rstrip(_WHITE)) :]
                    left = len(KEPT) if _END.search(said) else left
                continue
            tail = ""
            if kind == ")" and number in paired:
                element, place = opened.pop(), len(text)
                element.closing, element.end = sent, place
                element.has_words = bool(_WORD.search(text, element.start))
                # Before code or an icon that ends it, the space is its own.
                shown = any(x.is_shown for x in element.children)
                is_last = [x.start for x in element.children[-1:]] == [place]
                last = element if is_last else none
                signs = _RAISED if tag == "sup" else _SYMBOLS
                # Not the sign of "2<b>+</b>3".
                behind = "".join(x[-1] for x in parts[number + 1 : number + 2])
                near = text[: element.start][-1:] + behind[:1]
                is_one = signs is _SYMBOLS and len(near) > 1 and near.isalnum()
                if signs.fullmatch(text, element.start) and not is_one:
                    text = text[: element.start]
                    whole = [x[-1] for x in parts[element.number : number + 1]]
                    last = _Element("".join(whole), start=element.start)
                    last.is_shown, opened[-1].children[-1] = shown, last
                continue
            last = _Element(sent, number, len(text))
            last.is_shown = kind in "=." and tag not in _TIGHT
            opened[-1].children.append(last)
            if number in paired:
                opened.append(last)
            elif kind == "=" and has_marks and left and _SAYING.search(sent):
                last.code, left = str(len(self._codes)), left - 1
                self._codes[last.code] = sent
                text += f"{{KT{last.code}}}"
        if tail:
            text, self._whole.closing = text[:-1], tail
        self._whole.end, self._known = len(text), {*self._codes}
        self.text = "" if is_kept(_STAND_IN.sub("", text)) else text

    def put(self, sentences: Sequence[Sentence], splitter: Splitter) -> str:
        """Write translations in place of the text; if unchanged, as sent."""
        if all(each.best == each.source for each in sentences):
            return self.sent
        spans = [each.span for each in sentences]
        pieces = splitter.pieces(self.text, spans, [x.best for x in sentences])
        self._target = target = "".join(pieces)
        self._languages = splitter.languages
        self._is_sign = [x in _SIGNS for x in f"{self.text}  "]
        self._gap = " " * language_of(splitter.languages[1]).has_spaces
        # Beside a word, what is shown takes a space, if it touched no word.
        source = "" if splitter.space else self.text
        self._touched = [x.isalnum() for x in f" {source:{len(self.text)}}  "]
        self._spaces = [self._gap * x.isalnum() for x in f" {target} "]
        # The numbers of marks that the translation lacks.
        self._lost = {*self._codes} - {x for _, x in _STAND_IN.findall(target)}
        # Of each word of the translation, its place and its source word's.
        self._words: list[tuple[Span, Span]] = []
        # By the end of each sentence, the number of its first word.
        self._firsts = dict[int, int]()
        # Where words and sentences begin and end: in text, words, translation.
        edges = [*itertools.chain(*spans), len(self.text)]
        edges.insert(0, max(0, edges[0] - len(pieces[0])))
        self._borders: list[tuple[int, int, int]] = [(edges[0], 0, 0)]
        at = 0
        self._stops = dict[int, int]()  # Of sentences there and in the text.
        for i, piece in enumerate(pieces):
            # Between sentences stands what stays as it is.
            links = sentences[i // 2].links if i % 2 else None
            self._link(Span(*edges[i : i + 2]), piece, at, links or [])
            at += len(piece)
            self._stops |= {at: edges[i + 1]} if i % 2 else {}
        self._borders.sort()
        words, inside = Span(0, len(self._words)), Span(0, len(target))
        return self._inner(self._whole, words, inside)

    def _link(self, span: Span, best: str, at: int, links: Links) -> None:
        """Note which words of a translation come from which."""
        of_source, of_target = self._languages
        source = _words(self.text[slice(*span)], of_source, span.start)
        target = _words(best, of_target, at)
        self._firsts.setdefault(span.end, len(self._words))
        origins = {y: x for x, y in links}
        for place, word in enumerate(target if source else ()):
            # Words without a link keep their order.
            default = place * len(source) // len(target)
            origin = source[origins.get(place, default)]
            self._borders.append((origin.start, len(self._words), word.start))
            self._words.append((word, origin))
            # In last signs, "m<sup>2</sup>.", or in a copy, "2<sup>8</sup>-1".
            both = self._target[slice(*word)], self.text[slice(*origin)]
            signs, of_origin = (len(x) - len(x.rstrip(_SIGNS)) for x in both)
            for i in range(origin.end == span.end, 1 + of_origin):
                bare = word.end - min(i, signs)
                self._borders.append((origin.end - i, len(self._words), bare))
            # And where both begin alike, as in "5 mg/m<sup>2</sup>/day".
            alike = os.path.commonprefix([x.lower() for x in both])
            for i in range(1, len(alike)):
                border = origin.start + i, len(self._words), word.start + i
                self._borders.append(border)
        self._borders.append((span.end, len(self._words), at + len(best)))

    def _inner(self, element: _Element, words: Span, inside: Span) -> str:
        """Write an element around these words, these characters."""
        runs, placed, place = self._runs(element, words), [], Span(0, 0)
        places = enumerate(self._words[slice(*words)], words.start)
        free = {i for i, (x, _) in places if _WORD.search(self._target, *x)}
        free = free.difference(*(range(*run) for run in runs.values()))
        for child in element.children:
            # It goes to the next border of a word; behind one, to the last.
            border, number, at = child.start, words.end, inside.end
            i = bisect.bisect_left(self._borders, (child.start,))
            if self._touched[child.start] > self._touched[child.start + 1]:
                i = max(i, bisect.bisect(self._borders, (child.start + 1,)) - 1)
            if i < len(self._borders) and self._borders[i][0] < element.end:
                border, number, at = self._borders[i]
                if child.is_shown:  # It begins the next sentence, ends none.
                    i = bisect.bisect(self._borders, (border, number + 1))
                    at = self._borders[i - 1][2]
            at = self._before_signs(child, at) if child.is_shown else at
            # Or around a free word there: a link without words would be lost.
            near = min(max(number, words.start), words.end - 1)
            if child.start < border:  # The last one, if its sentence ends here.
                own = range(self._firsts.get(border, number), number)
                near = max(free.intersection(own), default=near)
            near -= near not in free
            if child.has_words and near in free and child not in runs:
                free.remove(near)
                runs[child] = Span(near, near + 1)
            if run := runs.get(child):
                place = self._around(child, run, place.end)
                placed.append((run, place, child))
            elif not child.code or child.code in self._lost:
                its = slice(child.start, 0 if child.has_words else child.end)
                signs = self.text[its].strip()
                at = max(at, self._target.find(signs, at, inside.end))
                end = at + len(signs) * self._target.startswith(signs, at)
                placed.append((Span(number, number), Span(at, end), child))
        parts, at = [element.opening], inside.start
        for run, place, child in sorted(placed, key=lambda each: each[1]):
            start = min(max(at, place.start), inside.end)
            end = min(max(start, place.end), inside.end)
            inner = self._inner(child, run, Span(start, end))
            if child.code:  # The model has left it out.
                inner = f"{self._gap}{inner}{self._gap}"
            elif start == end and child.is_shown:
                touched = self._touched[child.start : child.start + 2]
                spaces = zip(self._spaces[end : end + 2], touched, strict=True)
                inner = inner.join(x * (not y) for x, y in spaces)
                before = self.text[child.start - 1 : child.start]
                if end and before == " " and self._target[end - 1] in _CLOSERS:
                    inner = self._gap + inner
            parts += self._written(at, start), inner
            at = end
        return "".join([*parts, self._written(at, inside.end), element.closing])

    def _before_signs(self, child: _Element, at: int) -> int:
        """Go before the signs that come from those right behind an element."""
        is_apart = child.opening[-1:] in _WHITE
        near = self.text[child.start : child.start + 9 * (not is_apart)]
        signs = "".join(_BEHIND.findall(near)[0].split()).translate(_ASCII)
        if not signs and child.start < self._stops.get(at, 0):
            left = self._target[max(0, at - 9) : at]  # Its sentence ends here.
            at -= len(left) - len(left.rstrip(".!?…。！？"))
        ahead = self._target[at : at + 9].lstrip().translate(_ASCII)
        signs *= not ahead.startswith(signs[:1])  # They are still to come.
        for i in range(at - 1, -1, -1):
            sign = self._target[i].translate(_ASCII)
            if signs and sign == signs[-1]:
                signs, at = signs[:-1], i
            elif not (signs and sign.isspace()):
                break
        return at

    def _runs(self, element: _Element, words: Span) -> dict[_Element, Span]:
        """Find for each child a run of words that mostly come from its own."""
        children = [each for each in element.children if each.start < each.end]
        best: dict[_Element, tuple[int, Span]] = {}
        latest: dict[_Element, tuple[int, Span]] = {}
        for number in range(*words):
            _, origin = self._words[number]
            i = bisect.bisect(children, origin.start, key=lambda x: x.end)
            found = [*_WORD.finditer(self.text, *origin)]
            begin, end = found and (found[0].start(), found[-1].end()) or origin
            # Nine at most may share a word.
            for child in children[i : i + 9]:
                if child.start >= origin.end:
                    break
                if child.start >= end or child.end <= begin:
                    continue  # A comma only.
                # Another word costs as much as one of its own gains.
                gain, run = latest.get(child, (0, Span(number, number)))
                gain -= number - run.end
                start = run.start if gain > 0 else number
                latest[child] = max(gain, 0) + 1, Span(start, number + 1)
                if latest[child][0] > best.get(child, (0,))[0]:
                    best[child] = latest[child]
        return {child: run for child, (_, run) in best.items()}

    def _around(self, element: _Element, run: Span, at: int) -> Span:
        """Find a run's characters; a comma left out before stays left out.

        So does the rest of a word. Its part before, if any, ends at `at`.
        """
        (start, _), origin = self._words[run.start]
        end = self._words[run.end - 1][0].end
        is_own = element.start < origin.end and origin.start < element.end
        sides = (origin.start, element.start), (element.end, origin.end)
        # Of "3<sup>rd</sup>", "3" stays outside.
        before, text = self.text[slice(*sides[0])], self._target[start:end]
        ahead = len(before) * text.lower().startswith(before.lower())
        is_part = is_own and not (ahead and element.end >= origin.end)
        if is_part and any(_WORD.search(self.text, *x) for x in sides):
            own = self.text[element.start : element.end].strip()
            at = at if start + ahead <= at < end else start + ahead
            at = self._target.find(own, at, end)
            if at >= 0:
                return Span(at, at + len(own))
            # Of "Start/Neues" each link encloses its own part.
            ours = _WORD.finditer(self.text, *origin)
            theirs = [*_WORD.finditer(self._target, start, end)]
            inside = [element.start <= x.start() < element.end for x in ours]
            if len(inside) == len(theirs) and any(inside):
                parts = [*itertools.compress(theirs, inside)]
                return Span(parts[0].start(), parts[-1].end())
            if not ahead and element.opening[:4].lower() == "<sup":  # "1st"
                return Span(end, end)
        if is_own and ahead:
            start += ahead
            if element.end <= origin.end:
                end = max(start, self._words[run.start][0].end)
        text, is_sign = self._target[start:end], self._is_sign
        if is_sign[element.start - 1] and not is_sign[element.start]:
            start = end - len(text.lstrip(f"{_SIGNS} \xa0\u202f"))
        outside = self.text[element.end : self._words[run.end - 1][1].end]
        near = element.end + self.text.startswith(" ", element.end)
        rest = len(outside) * text.lower().endswith(outside.lower())
        text = text[: len(text) - rest]
        if is_sign[near] and not is_sign[element.end - 1]:
            rest += len(text) - len(text.rstrip(f"{_SIGNS} \xa0\u202f"))
        end -= rest
        # A space at its end, as before code, is its own.
        is_open = self.text[element.end - 1 : element.end] == " "
        end += is_open and self._target[end : end + 1] == " "
        return Span(start, end)

    def _written(self, start: int, end: int) -> str:
        """Write a part of the translation as HTML, each code once."""

        def write(mark: re.Match[str]) -> str:
            if mark[2] not in self._known:  # The page says so itself.
                return mark[0]
            code = self._codes.pop(mark[2], "")
            return code and mark[1] + code

        return _STAND_IN.sub(write, html.escape(self._target[start:end], False))


def _words(text: str, language: str, at: int) -> list[Span]:
    """Find words; what ICU finds within a mark becomes all of it."""
    words = [Span(at + x, at + y) for x, y in words_of(text, language)]
    for mark in _STAND_IN.finditer(text):
        i, j = (bisect.bisect_left(words, (at + x,)) for x in mark.span())
        words[i:j] = [Span(words[i][0], words[j - 1][1]) for _ in words[i:j]]
    return words
