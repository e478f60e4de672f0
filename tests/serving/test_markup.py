"""HTML keeps its tags: each goes around the words that come from its own."""

import re

import lxml.html
import numpy as np
import pytest

from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.markup import Page, Part
from keras_transformer.translation.sentences import Span


def shouted(html, order=None, links=True):
    """Translate into capitals, the words of each line in another order.

    `order` maps a word's number and their count to its place; None keeps it.
    """
    page = Page(html)
    for segment in page.segments:
        span = Span(
            len(segment.text) - len(segment.text.lstrip()),
            len(segment.text.rstrip()),
        )
        words = segment.text.split()
        places = range(len(words))
        if order:
            places = [order(i, len(words)) for i in places]
        target = [""] * len(words)
        for word, place in zip(words, places, strict=True):
            target[place] = word.upper()
        pairs = list(enumerate(places)) if links else None
        segment.put([Part(span, " ".join(target), pairs)], "de")
    return page.html()


def backwards(place, count):
    return count - 1 - place


@pytest.mark.parametrize(
    "html, expected",
    [
        ("plain text", "TEXT PLAIN"),
        ("a <b>red house</b> here", "HERE <b>HOUSE RED</b> A"),
        (
            "see <a href='x?a=1&amp;b=2'>our <i>new</i> page</a> now",
            'NOW <a href="x?a=1&amp;b=2">PAGE <i>NEW</i> OUR</a> SEE',
        ),
        # Without the comma that stands outside, and the brackets around.
        ("<b>yes</b>, sir", "SIR <b>YES</b>,"),
        ("(<b>yes</b>) sir", "SIR (<b>YES</b>)"),
        ("<b>yes,</b> sir", "SIR <b>YES,</b>"),
        # Half a word is a word.
        ("<b>un</b>able to", "TO <b>UNABLE</b>"),
        # An empty element goes before the word that it was before.
        ("one <img src=a> two three", 'THREE <img src="a">TWO ONE'),
        ("<img src=a> one two", '<img src="a"> TWO ONE'),
        ("one two <img src=a>", 'TWO ONE <img src="a">'),
        ("one <b></b>two", "<b></b>TWO ONE"),
        ("one <!-- a --> two three", "THREE <!-- a -->TWO ONE"),
        ("&lt;b&gt; &eacute;t&eacute; &amp; co", "CO &amp; ÉTÉ &lt;B&gt;"),
    ],
)
def test_elements_move_with_their_words(html, expected):
    assert shouted(html, backwards) == expected


@pytest.mark.parametrize(
    "html, expected",
    [
        ("<p>a b</p>\n<p>c d</p>", "<p>B A</p>\n<p>D C</p>"),
        ("a b<br>c d", "B A<br>D C"),
        ("<ul><li>a b<li>c</ul>", "<ul><li>B A</li><li>C</li></ul>"),
        ("<td>a b</td><td>c</td>", "<td>B A</td><td>C</td>"),
        # A link around a block has a sentence of its own.
        ("<a><div>a b</div></a> c d", "<a><div>B A</div></a> D C"),
        ("<pre>a  b\n c</pre>", "<pre>C B A</pre>"),
        (
            "a b <script>if (a < b) c()</script> d e",
            "B A <script>if (a < b) c()</script> E D",
        ),
        ("a <code>b c</code> d e", "A <code>b c</code> E D"),
        ('<p translate="NO">a b</p>', '<p translate="NO">a b</p>'),
        (
            'a b <i class="x notranslate">c d</i>',
            'B A <i class="x notranslate">c d</i>',
        ),
        (
            "<!doctype html><html><head><title>a b</title><meta charset=x>"
            "</head><body>c d</body></html>",
            "<!DOCTYPE html>\n<html><head><title>B A</title>"
            '<meta charset="x"></head><body>D C</body></html>',
        ),
        ("", ""),
        ("a\0b \x01 c", "C AB"),
    ],
)
def test_blocks_are_translated_each_for_itself(html, expected):
    assert shouted(html, backwards) == expected


def test_a_word_that_comes_from_elsewhere_does_not_stretch_an_element():
    # "a" is said to come from the first word, far from the other.
    page = Page("<b>big</b> old red house")
    (segment,) = page.segments
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 4)]
    segment.put([Part(Span(0, 17), "großes altes rotes Haus da", links)], "de")
    assert page.html() == "<b>großes</b> altes rotes Haus da"


def test_elements_of_two_sentences_have_their_words_in_both():
    page = Page("Come <i>here. Sit</i> down.")
    (segment,) = page.segments
    segment.put(
        [
            Part(Span(0, 10), "Komm her.", [(0, 0), (1, 1)]),
            Part(Span(11, 20), "Setz dich.", [(0, 0), (1, 1)]),
        ],
        "de",
    )
    assert page.html() == "Komm <i>her. Setz</i> dich."


def test_an_image_at_the_head_of_a_sentence_stays_there():
    page = Page("Come here. <img src=a> Sit down <img src=b> now.")
    (segment,) = page.segments
    start = segment.text.index("Sit")
    end = len(segment.text)
    segment.put(
        [
            Part(Span(0, 10), "Komm her.", [(0, 0), (1, 1)]),
            # Nothing comes from "now.", nor the first word from "Sit".
            Part(Span(start, end), "Nun setz dich.", [(1, 0), (0, 1), (1, 2)]),
        ],
        "de",
    )
    assert page.html() == ('Komm her. <img src="a">Nun setz dich.<img src="b">')


def test_without_links_the_order_is_that_of_the_source():
    found = shouted("one <b>two</b> three <i>four</i>", links=False)
    assert found == "ONE <b>TWO</b> THREE <i>FOUR</i>"


def random_html(draw, depth=3):
    """Words and elements, some of them empty."""
    found = []
    for _ in range(draw.integers(1, 5)):
        kind = draw.integers(4 if depth else 2)
        if kind < 2:
            found.append(f"w{draw.integers(1000)}")
            found.append(str(draw.choice([" ", ", ", "", ". "])))
        else:
            name = draw.choice(["b", "i", "a", "x-y"])
            inner = random_html(draw, depth - 1) if draw.integers(5) else ""
            found.append(f'<{name} n="{draw.integers(10**6)}">{inner}</{name}>')
            found.append(str(draw.choice([" ", ""])))
    return "".join(found)


def elements(html):
    """Each element with the chain of those around it."""
    root = lxml.html.fragment_fromstring(html, create_parent="div")
    return sorted(
        [each.get("n") for each in (node, *node.iterancestors())][:-1]
        for node in root.iterdescendants()
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_element_and_no_word_is_lost_whatever_comes_from_where(seed):
    draw = np.random.default_rng(seed)
    html = random_html(draw)
    order = draw.permutation(len(Page(html).segments[0].text.split()))
    found = shouted(html, lambda i, _: order[i])
    assert elements(found) == elements(html)
    text = Page(html).segments[0].text.upper().split()
    plain = re.sub("<[^>]*>", "", found).split()
    assert sorted(plain) == sorted(text)


@pytest.mark.parametrize(
    "unit", ["<", "<a ", "<p>x", "&#x", "<!--", "<b>x </b>", "<![CDATA["]
)
def test_a_hundred_thousand_odd_characters_are_read_and_written(unit):
    html = unit * (100_000 // len(unit))
    assert isinstance(shouted(html), str)


@pytest.mark.parametrize("html", ["<html", "<!doctype html>", "<b>" * 260])
def test_what_cannot_be_read_to_its_end_is_refused(html):
    assert "<b>" * 240 in shouted("<b>" * 240 + "a")
    with pytest.raises(RefusalError, match="Expected HTML"):
        Page(html)


def test_what_lxml_cannot_hold_does_not_come_from_a_translation():
    page = Page("a")
    page.segments[0].put([Part(Span(0, 1), "b\0\x0b\ufffe", None)], "de")
    assert page.html() == "b"
