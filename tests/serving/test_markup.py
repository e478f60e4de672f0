"""HTML keeps its tags: each goes around the words that come from its own."""

import re
import time
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.serving.markup import read
from keras_transformer.serving.service import Sentence
from keras_transformer.translation.sentences import Span, Splitter

EN_DE = Splitter("en", "de")


def put(segment, *parts, splitter=EN_DE):
    """Put translations at spans, with the links of each."""
    sentences = [
        Sentence(0, segment.text, span, "", [(best, 0.0)], links)
        for span, best, links in parts
    ]
    return segment.put(sentences, splitter)


def shouted(html, order):
    """Translate into capitals, the words of each line in another order.

    `order` maps a word's number and their count to its place.
    """
    whole = ""
    for segment in read(html):
        span = Span(
            len(segment.text) - len(segment.text.lstrip()),
            len(segment.text.rstrip()),
        )
        words = segment.text.split()
        places = [order(i, len(words)) for i in range(len(words))]
        target = [""] * len(words)
        for word, place in zip(words, places, strict=True):
            target[place] = word.upper()
        pairs = list(enumerate(places))
        whole += put(segment, (span, " ".join(target), pairs))
    return whole


def returned(html):
    """Translate each segment, as one sentence, by itself."""
    whole = ""
    for segment in read(html):
        text = segment.text.strip()
        start = segment.text.index(text)
        links = [(i, i) for i in range(len(text.split()))]
        whole += put(segment, (Span(start, start + len(text)), text, links))
    return whole


def backwards(place, count):
    return count - 1 - place


@pytest.mark.parametrize(
    "html, expected",
    [
        ("plain text", "TEXT PLAIN"),
        ("a <b>red house</b> here", "HERE <b>HOUSE RED</b> A"),
        (
            "see <a href='x?a=1&amp;b=2'>our <i>new</i> page</a> now",
            "NOW <a href='x?a=1&amp;b=2'>PAGE <i>NEW</i> OUR</a> SEE",
        ),
        # Without the brackets around.
        ("(<b>yes</b>) sir", "SIR (<b>YES</b>)"),
        # Half a word is a word.
        ("<b>un</b>able to", "TO <b>UNABLE</b>"),
        # An empty element goes before the word that it was before.
        ("one <img src=a> two three", "THREE <img src=a> TWO ONE"),
        # Or after the word that it follows.
        ("one<wbr>, two three", "THREE TWO ONE,<wbr>"),
        # What is not translated has one place, and comes back whole.
        ("a <code>b  <i>c</i></code> d e", "E <code>b  <i>c</i></code> D A"),
        # Their end tags may be left out.
        (
            "a <ruby>b<rp>(<rt>x y<rp>)</ruby> d <i>e</i>",
            "<i>E</i> D <ruby>B<rp>(<rt>x y<rp>)</ruby> A",
        ),
        ("&lt;b&gt; &eacute;t&eacute; &amp; co", "CO &amp; ÉTÉ &lt;B&gt;"),
    ],
)
def test_elements_move_with_their_words(html, expected):
    assert shouted(html, backwards) == expected


@pytest.mark.parametrize(
    "html, expected",
    [
        ("<p>a b</p>\n<p>c d</p>", "<p>B A</p>\n<p>D C</p>"),
        ("<ul><li>a b<li>c</ul>", "<ul><li>B A<li>C</ul>"),
        ("<pre>a  b\n c</pre> d e", "<pre>a  b\n c</pre> E D"),
        (
            "a b<p><script>'</p>' < b</script>c",
            "B A<p><script>'</p>' < b</script>C",
        ),
        ('<p translate="NO">a b<p>c d', '<p translate="NO">a b<p>D C'),
        (
            'a b <i class="x notranslate">c d</i>',
            'B A <i class="x notranslate">c d</i>',
        ),
        (
            "<!-- a --> <!docType html><html lang=en><head>\n<title>a b</title>"
            "<meta charset=x></head><body class='c'>\n c\n d\n</body>",
            "<!-- a --> <!docType html><html lang=en><head>\n<title>B A</title>"
            "<meta charset=x></head><body class='c'>\n D C\n</body>",
        ),
        # What ends elsewhere than it should is a border.
        ("a <b>b c <i>d e</b> f g</i>", "A <b>C B <i>E D</b> G F</i>"),
        ("a < b </> c", "</> C B &lt; A"),
    ],
)
def test_blocks_are_translated_each_for_itself(html, expected):
    assert shouted(html, backwards) == expected


def test_a_word_that_comes_from_elsewhere_does_not_stretch_an_element():
    # "a" is said to come from the first word, far from the other.
    segment = read("<b>big</b> old red house")[0]
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 4)]
    found = put(segment, (Span(0, 17), "großes altes rotes Haus da", links))
    assert found == "<b>großes</b> altes rotes Haus da"


def test_what_a_word_processor_leaves_cuts_no_sentence():
    html = "A child is<o:p></o:p> <st1:place>playing</st1:place> here."
    assert read(html)[0].text == "A child is playing here."


@pytest.mark.parametrize(
    "html, text",
    [
        ("in 2024<sup>1</sup> a", "in 2024 1 a"),
        ("7<b><SUB class=x><i>2</i></SUB></b>", "7 2"),
    ],
)
def test_a_raised_number_is_no_digit_of_the_one_before(html, text):
    assert read(html)[0].text == text
    found = shouted(html, lambda i, _: i)
    assert found == html.replace("in", "IN").replace(" a", " A")


def test_a_raised_number_without_a_word_takes_no_space_away():
    segment, _ = read("In 2024<sup>1</sup> war good")
    span, links = Span(0, len(segment.text)), [(0, 0), (3, 1), (4, 2)]
    found = put(segment, (span, "Damals war gut", links))
    assert re.sub("<.*?>", "", found) == "Damals war gut"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            "A dog ran.{<sup>1</sup>} It sat.{<sup>2,3</sup>}",
            "RAN. DOG A{} SAT. IT{}",
        ),
        (
            "A dog ran.{<SUP><a href='#1'><i>[</i>1]</a></SUP>} It",
            "RAN. DOG A{} IT",
        ),
        ("A dog ran.{<a href='#1'>[1]</a>} It sat.", "RAN. DOG A{} SAT. IT"),
        ("A dog ran.{<sup>*</sup>} It", "RAN. DOG A{} IT"),
        ("A dog ran.{<a href=x>†</a>}", "RAN. DOG A{}"),
        ("A dog ran. {<i>🐶</i>} It", "RAN. DOG A {} IT"),
        ("In Bonn{<sup>[1]</sup>} it ran.", "RAN. IT BONN{} IN"),
        ("{<b>1.</b>} A dog ran.", "{} RAN. DOG A"),
        ("{<i>·<b>&nbsp; </b></i>}A dog ran.", "{}RAN. DOG A"),
        ("{<b>•</b>}&nbsp;A dog", "{}\xa0DOG A"),
        # Only before a space, and behind the end of a sentence.
        ("<b>1.</b>5 dogs", "DOGS <b>1.5</b>"),
        ("dog <b>a)</b> it", "IT <b>A)</b> DOG"),
        ("m<sup>2</sup> is", "IS <sup>M2</sup>"),
        ("A dog<b>!</b> It", "<b>DOG!</b> A IT"),
    ],
)
def test_a_mark_keeps_its_tags_and_its_place_by_the_sentence(html, expected):
    marks = re.findall("{(.*?)}", html)
    segment, _ = read(re.sub("[{}]", "", html))
    parts = []
    for span in EN_DE.spans(segment.text):
        words = segment.text[slice(*span)].upper().split()
        links = [(backwards(i, len(words)), i) for i in range(len(words))]
        parts.append((span, " ".join(words[::-1]), links))
    assert put(segment, *parts) == expected.replace("{}", "%s") % tuple(marks)


def test_other_letters_that_are_raised_belong_to_their_word():
    assert read("1<sup>st</sup> H<sub>2</sub>O")[0].text == "1st H2O"


def test_a_reference_that_is_no_character_stays_as_it_is():
    html = f"a &#{'9' * 5_000}; b"
    assert returned(html) == read(html)[0].text == html


def test_elements_of_two_sentences_have_their_words_in_both():
    found = put(
        read("Come <i>here. Sit</i> down.")[0],
        (Span(0, 10), "Komm her.", [(0, 0), (1, 1)]),
        (Span(11, 20), "Setz dich.", [(0, 0), (1, 1)]),
    )
    assert found == "Komm <i>her. Setz</i> dich."


@pytest.mark.parametrize(
    ("html", "languages", "translation", "links", "expected"),
    [
        (
            "I like <b>cats</b>.",
            ("en", "zh"),
            "我喜欢猫。",
            [(0, 0), (1, 1), (2, 2), (2, 3)],
            "我喜欢<b>猫</b>。",
        ),
        # The vowel sign, the tone and the virama belong to the last letter.
        (
            "Hello <b>world</b>!",
            ("en", "hi"),
            "नमस्ते दुनिया!",
            [(0, 0), (1, 1)],
            "नमस्ते <b>दुनिया</b>!",
        ),
    ],
)
def test_a_tag_can_enclose_one_word_of_a_text_without_spaces(
    html, languages, translation, links, expected
):
    segment = read(html)[0]
    part = Span(0, len(segment.text)), translation, links
    assert put(segment, part, splitter=Splitter(*languages)) == expected


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


class Elements(HTMLParser):
    """Each element with the chain of those around it."""

    def __init__(self, html):
        super().__init__()
        self.open, self.found = [], []
        self.feed(html)
        self.found.sort()

    def handle_starttag(self, tag, attrs):
        self.open.append(dict(attrs)["n"])
        self.found.append([*self.open])

    def handle_endtag(self, tag):
        self.open.pop()


@pytest.mark.parametrize("seed", range(40))
def test_no_element_and_no_word_is_lost_whatever_comes_from_where(seed):
    draw = np.random.default_rng(seed)
    html = random_html(draw)
    order = draw.permutation(len(read(html)[0].text.split()))
    found = shouted(html, lambda i, _: order[i])
    assert Elements(found).found == Elements(html).found
    text = read(html)[0].text.upper().split()
    plain = re.sub("<[^>]*>", "", found).split()
    assert sorted(plain) == sorted(text)


# Pieces that begin, end or look like something.
PIECES = """
    a <b> </b> <I > </i> <p> </P> <img/> <br> <code> </code> <a_x='>" </a <!--
    --> --!> <!doctype_html> <script> </script> <title> </title> <textarea>
    </textarea> <i_translate=no> <p_class="notranslate"> < > " ' = / & &amp; &lt
    &#x41 &eacute; </ </> <? <![CDATA[ ]]> é 你 \N{NO-BREAK SPACE} \0
""".replace("\N{NO-BREAK SPACE}", "_").split()


@given(st.lists(st.sampled_from([" ", "\n", *PIECES])).map("".join))
def test_what_nobody_changes_comes_back_byte_for_byte(html):
    html = html.replace("_", " ")
    assert returned(html) == html


@pytest.mark.parametrize(
    "count, unit",
    [
        *((500, x) for x in ("<b>x</b> ", "<b>(</b>", "<p>x", "<title>")),
        *((500, x) for x in ("<i><b></i>", "<svg>x</p>", ",<img>")),
        *((80_000, x) for x in ("<!--", "<a ", "&#x", '<a b="', "<![CDATA[")),
    ],
)
def test_eight_times_as_many_tags_take_about_eight_times_as_long(count, unit):
    def seconds(count):
        start = time.thread_time()
        shouted(unit * count, backwards)
        return time.thread_time() - start

    one, eight = (min(seconds(n) for _ in range(3)) for n in (count, 8 * count))
    # The square would be 64, and a machine may slow down to half its speed.
    assert eight < 20 * one + 0.01
