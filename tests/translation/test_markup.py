"""HTML keeps its tags: each goes around the words that come from its own."""

import re
import time
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.translation.markup import read
from keras_transformer.translation.sentences import Sentence, Span, Splitter

EN_DE, EN_ZH = Splitter("en", "de"), Splitter("en", "zh")


def put(segment, *parts, splitter=EN_DE):
    """Put translations at spans, with the links of each."""
    sentences = [
        Sentence(0, segment.text, span, "", [(best, 0.0)], links)
        for span, best, links in parts
    ]
    return segment.put(sentences, splitter)


def shouted(html, order, has_marks=False):
    """Translate into capitals, the words of each line in another order.

    `order` maps a word's number and their count to its place.
    """
    whole = ""
    for segment in read(html, has_marks):
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
        whole += put(segment, (Span(start, start + len(text)), text, []))
    return whole


def test_what_stands_between_words_without_spaces_gets_those_of_the_target():
    (segment,) = read("私は<kbd>Ctrl</kbd>を押した。<img src=a>")
    best = (Span(0, len(segment.text)), "I pushed the key.", [])
    words = put(segment, best, splitter=Splitter("ja", "en"))
    assert words == "I pushed <kbd>Ctrl</kbd> the key.<img src=a>"
    # In the second sentence one belongs to it, in the first one does not.
    (segment,) = read("本だ。<code>a</code>は猫だ。<sup>*1</sup>犬だ")
    spans = Span(0, 3), Span(3, 7), Span(7, 9)
    said = zip(spans, ("A book.", "Is a cat.", "A dog"), [[]] * 3, strict=True)
    words = put(segment, *said, splitter=Splitter("ja", "en"))
    assert words == "A book. <code>a</code> Is a cat.<sup>*1</sup> A dog"
    # But no tag does.
    (segment,) = read("<!-- a --><ruby>犬<rt>いぬ</rt></ruby>だ<wbr>よ")
    best = (Span(0, 3), "A dog", [(0, 1)])
    words = put(segment, best, splitter=Splitter("ja", "en"))
    assert words == "<!-- a --><ruby>A dog<rt>いぬ</rt></ruby><wbr>"


@pytest.mark.parametrize(
    "html, best, expected",
    [
        ("Use <kbd>a</kbd>.", "Nimm.", "Nimm <kbd>a</kbd>."),
        ("See <a><kbd>a</kbd></a>!", "Da!", "Da <a><kbd>a</kbd></a>!"),
        # Each before its own comma, as far as the translation has commas.
        (
            "Of <kbd>a</kbd>, <kbd>b</kbd>, and <kbd>c</kbd>.",
            "Von,, und.",
            "Von <kbd>a</kbd>, <kbd>b</kbd>, und <kbd>c</kbd>.",
        ),
        (
            "Our son, <code>a</code>, is (in <code>b</code>).",
            "Unser Sohn, ist (in).",
            "Unser Sohn <code>a</code>, ist (in <code>b</code>).",
        ),
        (
            "Set <kbd>a</kbd> to <kbd>b</kbd>.",
            "Da.",
            "Da <kbd>a</kbd>  <kbd>b</kbd>.",
        ),
        # Not before the end of another sentence; nothing comes near what is.
        ("Go. <img>: it", "Los. Das", "Los. <img> Das"),
        ("Go.<img> So", "Los. So", "Los.<img> So"),
    ],
)
def test_what_stands_before_signs_stays_before_them(html, best, expected):
    (segment,) = read(html)
    # The words of both, without signs alone, are in the same order.
    source, target = (
        [i for i, word in enumerate(x.split()) if re.search(r"\w", word)]
        for x in (segment.text, best)
    )
    links = [*zip(source, target, strict=False)]
    assert put(segment, (Span(0, len(segment.text)), best, links)) == expected


def test_links_around_parts_of_a_word_enclose_their_own_parts():
    (segment,) = read("<a>Start</a>/<a>Neues</a>")
    words = put(segment, (Span(0, 11), "Home/News", [(0, 0)]))
    assert words == "<a>Home</a>/<a>News</a>"
    # A whole word does not become a part of one.
    for origin in 1, 2:
        (segment,) = read("Сын <b>дома</b>, да.")
        links = [(0, 0), (origin, 1), (2, 2)]
        words = put(segment, (Span(0, 13), "Син вдома, так.", links))
        assert words == "Син <b>вдома</b>, так."


def test_a_line_end_within_chinese_is_nothing_as_css_advises():
    segments = read("<p>東\r\n  京<b>\n都</b>\nへ Go\n行")
    assert segments[-1].text == "東京都へ Go 行"


def backwards(place, count):
    return count - 1 - place


@pytest.mark.parametrize(
    "html, expected",
    [
        ("a <b>red house</b> here", "HERE <b>HOUSE RED</b> A"),
        ("a <a b='&lt;'>c <i>d</i> e</a>", "<a b='&lt;'>E <i>D</i> C</a> A"),
        ("(<b>yes</b>) sir", "SIR (<b>YES</b>)"),
        ("<a>f(1)</a>, <b>“x”</b>. end", "END <b>“X”</b>. <a>F(1)</a>,"),
        ("<a>Of: <code>c</code></a><p>", "<a>OF: <code>c</code></a><p>"),
        ("<a>Of: <kbd>c</kbd></a>\n<ul>", "<a>OF: <kbd>c</kbd></a>\n<ul>"),
        ("a <a>red <i></i></a> dog", "DOG <a>RED <i></i></a> A"),
        # At its place in a word.
        ("of 2<sup>8</sup>-1 to", "TO 2<sup>8</sup>-1 OF"),
        ("<b>1</b><kbd>@</kbd><i>2</i> a", "A <b>1</b><kbd>@</kbd><i>2</i>"),
        ("<b>un</b>able to", "TO <b>UNABLE</b>"),
        ("3<sup>rd</sup> of", "OF 3<sup>RD</sup>"),
        ("<i>29</i><b>/mo</b> or", "OR <i>29</i><b>/MO</b>"),
        ("by L+<i><b>L</b></i>.", "L+<i><b>L</b></i>. BY"),
        # A comma of it is no word of it, nor is one alone.
        ("a <b>car</b><i>!</i>", "<b>CAR</b><i>!</i> A"),
        ("Menu<b>, shut</b> it", "IT <b>SHUT</b> MENU,"),
        # An empty element goes before the word that it was before.
        ("one <img src=a> two three", "THREE <img src=a> TWO ONE"),
        ("<img src=a />one two<br/>", "<img src=a />TWO ONE<br/>"),
        ("one<wbr>, two three", "THREE TWO ONE<wbr>,"),
        # Code comes back whole before the word that it was before.
        ("a <code>b  <i>c</i></code> d e", "E <code>b  <i>c</i></code> D A"),
        # Their end tags may be left out.
        ("<ruby>b<rp>(<rt>x<rp>)</ruby> d", "D <ruby>B<rp>(<rt>x<rp>)</ruby>"),
        ("&lt;b&gt; &eacute;t&eacute; &amp; co", "CO &amp; ÉTÉ &lt;B&gt;"),
        # So are texts that only style keeps apart, but no mark of a footnote.
        ("<b>Name</b><i>Ann S.</i>", "<b>NAME</b><i>S. ANN</i>"),
        (
            "on <b>Monday</b><u><b>9 a.m.</u>",
            "<b>MONDAY</b> ON<u><b>A.M. 9</u>",
        ),
        ("<i>Total due</i><b>$5</b>", "<i>DUE TOTAL</i><b>$5</b>"),
        ("<a>to do</a> &gt; <a>so</a>", "<a>DO TO</a> &gt; <a>SO</a>"),
        ("<b>to do</b><i>•</i><b>so</b>", "<b>DO TO</b><i>•</i><b>SO</b>"),
        ("<a>to do</a> <i></i> <a>so</a>", "<a>DO TO</a> <i></i> <a>SO</a>"),
        ("<b>1</b><i>Doors it</i>", "<b>1</b><i>IT DOORS</i>"),
        ("to <a>b</a> &gt; <a>c</a>", "<a>C</a> &gt; <a>B</a> TO"),
        ("To you<i>(in a tab)</i>", "YOU TO<i>TAB) A (IN</i>"),
        ("<b>Среда</b><b>9 ч.</b>", "<b>СРЕДА</b><b>Ч. 9</b>"),
        ("an <i>end</i><sup>1</sup> a", "A <i>END</i><sup>1</sup> AN"),
        ("is:<code>A1 b</code> one", "ONE IS:<code>A1 b</code>"),
        # Blocks are translated each for itself.
        ("<p>a b</p>\n<p>c d</p>", "<p>B A</p>\n<p>D C</p>"),
        ("<ul><li>a b<li>c</ul>", "<ul><li>B A<li>C</ul>"),
        ("<pre>a  b\n c</pre> d e", "<pre>a  b\n c</pre> E D"),
        ("a b<p><script></p><b</script>c", "B A<p><script></p><b</script>C"),
        ('<p translate="NO">a b<p>c d', '<p translate="NO">a b<p>D C'),
        ("a<i class='x notranslate'>c</i>", "A<i class='x notranslate'>c</i>"),
        (
            "<!-- a --> <!docType html><html lang=en><head>\n<title>a b</title>"
            "<meta charset=x></head><body class='c'>\n c\n d\n</body>",
            "<!-- a --> <!docType html><html lang=en><head>\n<title>B A</title>"
            "<meta charset=x></head><body class='c'>\n D C\n</body>",
        ),
        ("a < b </> c", "</> C B &lt; A"),
        # Tags that do not match stay with their words.
        ("a <i>b c", "C <i>B A"),
        ("<b>a <i>b</b> c", "C <b><i>B A</b>"),
        ("<p>a <i>b</p> c d</i> e", "<p><i>B A</p> E D</i> C"),
        ("a b</i> c", "C B</i> A"),
        ("a <b><i>b c</b></i> d", "D <b>C <i>B</b></i> A"),
        ("a <b>b <i>c</b> d</i> e", "E D</i> <b><i>C B</b> A"),
        ("a <b/>b", "<b/>B A"),
        # One inside code is no start of an end behind it.
        ("<code>q<b></code> <i>x</b> y", "<code>q<b></code> <i>Y X</b>"),
    ],
)
def test_elements_move_with_their_words_within_their_block(html, expected):
    assert shouted(html, backwards) == expected


def test_a_mark_behind_a_word_goes_behind_the_last_that_comes_from_it():
    segment = read("Ein Mann<sup>1</sup> liest.")[0]
    links = [(1, 0), (1, 1), (2, 2)]
    found = put(segment, (Span(0, 15), "A man reads.", links))
    assert found == "A man<sup>1</sup> reads."


def test_a_word_that_comes_from_elsewhere_does_not_stretch_an_element():
    # "a" is said to come from the first word, far from the other.
    segment = read("<b>big</b> old red house")[0]
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 4)]
    found = put(segment, (Span(0, 17), "großes altes rotes Haus da", links))
    assert found == "<b>großes</b> altes rotes Haus da"


def test_elements_whose_words_have_no_translation_take_free_words_beside():
    segment = read("A <a>very</a> <b>big</b> dog <i>runs</i>.")[0]
    links = [(0, 0), (3, 1), (2, 2), (3, 3)]
    found = put(segment, (Span(0, 21), "Ein sehr großer Hund.", links))
    assert found == "Ein <a>sehr</a> <b>großer</b> <i>Hund</i>."
    # Not those of the next sentence.
    both = (Span(0, 6), "去 。", [(0, 0), (0, 1)]), (Span(7, 10), "他？", [])
    words = put(read("Go <b>on</b>. He?")[0], *both, splitter=EN_ZH)
    assert words == "<b>去</b> 。他？"


@pytest.mark.parametrize(
    "html, text",
    [
        ("<p>a <i>b c.</p>", "a b c."),
        ("a <b>b <i>c</b> d</i> e", "a b c d e"),
        ("a b</i> c</x>.", "a b c."),
        ("a <foo x=1>b</foo> <x-y>c <o:p>d", "a b c d"),
        ("a <picture><source><img></picture> b", "a b"),
        ("a <map><area></map> b<meta> c", "a b c"),
        ("a <slot/>b", "a b"),
        # Other letters that are raised belong to their word.
        ("1<sup>st</sup> H<sub>2</sub>O", "1st H2O"),
        ("5<b>+</b>3 is<b>+</b>", "5+3 is"),
        # Links have spaces between, or none where the language has none.
        ("<a>a</a> <a>b</a>,<a>c</a>\n<a>d</a>", "a b,c|d"),
        ("<a>a</a><a></a> b<a>c</a><a> d</a><a><sup>1</sup></a> e", "a bc d e"),
        ("<a>a</a> <a><i></i> b</a>\n<b><i></i> c</b>", "a|b c"),
        ("<a>你</a><a>好</a><b>※</b>", "你好"),
        ("a <i>" * 99 + "b", "a " * 99 + "b"),
        # What a word processor leaves.
        ("I sat<o:p></o:p> <st1:place>in it</st1:place>.", "I sat in it."),
        # What comes back whole ends where a browser ends it.
        ("a <code>b<p>c", "a |c"),
        ("a <code>b<br>c</code> d", "a d"),
        ("a <svg><title>b</title></svg> c", "a c"),
        ("a <script>b<p></script> c", "a c"),
        ("a <script>b<p>c", "a "),
        ("<p translate=no>a<p>b", "b"),
        ("a<div translate=no>b<p>c", "a"),
        # Blocks and line breaks end a sentence.
        *((f"a{x}b", "a|b") for x in ("<br>", "</br>", "<p>", "</P>", "<hr/>")),
        *((f"a<b>{x}b", "a|b") for x in ("<li>", "<h2>", "</td>", "<section>")),
        *((f"a<{x}>b</{x}>", "a|b") for x in ("template", "video", "audio")),
        *((f"<{x}>a</{x}><{x}>b", "a|b") for x in ("button", "a", "label")),
        ("<a>a</a><A y=x><i>b</i>\r\n </A>\n<a>c…\n\t</a>\n<a>d", "a|b|c…|d"),
        ("<label>a</label><input type=x>\n<label>b</label>", "a|b"),
        ("<noscript>a</noscript>b<canvas>c</canvas>", "a|b|c"),
    ],
)
def test_a_text_ends_at_blocks_and_at_no_other_tag(html, text):
    assert "|".join(x.text for x in read(html) if x.text) == text


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("It ran.{<sup>1</sup>} Yes.{<sup>2,3</sup>}", "RAN. IT{} YES.{}"),
        ("It ran.{<SUP><a href=x><i>[</i>1]</a></SUP>} It", "RAN. IT{} IT"),
        ("A dog ran.{<a href='#1'>[1]</a>} It sat.", "RAN. DOG A{} SAT. IT"),
        ("A dog ran.{<sup>*</sup>} It", "RAN. DOG A{} IT"),
        ("A dog ran. {<i>🐶</i>} It", "RAN. DOG A {} IT"),
        ("In Bonn{<sup>[1]</sup>} it ran.", "RAN. IT BONN{} IN"),
        ("A dog{<sup>1</sup>} ran.", "RAN. DOG{} A"),
        ("A dog{<sup><a href='#1'>12</a></sup>}, it", "IT DOG{}, A"),
        ("20 m{<sup>2</sup>}.", "M{}. 20"),
        ("Of (a b){<sup>2</sup>}.", "B){}. (A OF"),
        ("In 2024{<sup>1</sup>} it", "IT 2024{} IN"),
        ("20 m{<sup>2</sup>} is", "IS M{} 20"),
        ("5 mg/m{<sup>2</sup>}/day", "MG/M{}/DAY 5"),
        ("A dog{<sup>b,1</sup>} ran.", "RAN. DOG{} A"),
        ("{<b>1.</b>} A dog ran.", "{} RAN. DOG A"),
        ("{<b>×</b>}&nbsp;A dog{<i>»</i>}", "{}\xa0DOG A{}"),
        ("{<a href='#x'>¶</a>} A dog", "{} DOG A"),
        ("A{<a>#</a>} dog", "DOG A{}"),
        ("A{<sup>®</sup>} dog{<sup>[note 1]</sup>}", "DOG A{}{}"),
        ("{<b>1.</b>}\xa0A dog", "{}\xa0DOG A"),
        ("{<b>1.</b>}<i> A dog</i>", "{} <i>DOG A</i>"),
        ("{<i>⭐</i>} A dog{<b>▶️</b>}{<i>⬆️</i>}", "{} DOG A{}{}"),
        ("<b>1.</b>5 dogs", "DOGS <b>1.</b>5"),
        ("<b>o </b>dog", "DOG <b>O</b>"),
        ("a <a>2</a> <b>#</b> [<b>x</b>]", "<b>#</b> [<b>X</b>] <a>2</a> A"),
        ("dog <b>a)</b> it", "IT <b>A)</b> DOG"),
        ("x<sub>2</sub> is", "IS X<sub>2</sub>"),
        ("Is C<sub>6</sub>H<sub>6</sub>", "C<sub>6</sub>H<sub>6</sub> IS"),
        ("A dog<b>!</b> It", "DOG<b>!</b> A IT"),
    ],
)
def test_a_mark_keeps_its_tags_and_its_place_by_the_sentence(html, expected):
    marks = re.findall("{(.*?)}", html)
    (segment,) = read(re.sub("[{}]", "", html))
    parts = []
    for span in EN_DE.spans(segment.text):
        words = segment.text[slice(*span)].upper().split()
        links = [(backwards(i, len(words)), i) for i in range(len(words))]
        parts.append((span, " ".join(words[::-1]), links))
    found = put(segment, *parts)
    assert found == expected.replace("{}", "%s") % tuple(marks)


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


# In Hindi, signs of vowels and the virama belong to the last letter.
@pytest.mark.parametrize(
    ("language", "translation", "links", "expected"),
    [
        ("zh", "我喜欢猫。", [0, 1, 2, 2], "我喜欢<b>猫</b>。"),
        ("fr", "Des chats !", [1, 2, 2], "Des <b>chats</b> !"),
        ("hi", "मुझे पसंद बिल्लियाँ।", [0, 1, 2], "मुझे पसंद <b>बिल्लियाँ</b>।"),
    ],
)
def test_a_tag_can_enclose_one_word_without_what_stands_beside_it(
    language, translation, links, expected
):
    segment = read("I like <b>cats</b>.")[0]
    links = [(source, target) for target, source in enumerate(links)]
    part = Span(0, len(segment.text)), translation, links
    assert put(segment, part, splitter=Splitter("en", language)) == expected


def random_html(draw, depth=3):
    """Words and elements, some of them empty."""
    found = []
    for _ in range(draw.integers(1, 5)):
        kind = draw.integers(4 if depth else 2)
        if kind < 2:
            found.append(f"w{draw.integers(1000)}")
            found.append(str(draw.choice([" ", ", ", "", ". "])))
        else:
            name = draw.choice(["b", "i", "u", "x-y"])
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


def test_code_is_a_mark_where_the_model_knows_marks():
    html = "Call <code>f( )</code>."
    segment = read(html, has_marks=True)[0]
    assert segment.text == "Call {KT0}."
    found = put(segment, (Span(0, 11), "{KT0} aufrufen.", []))
    assert found == "<code>f( )</code> aufrufen."
    # A page may say so itself.
    segment = read("Call {KT0} <b>now</b>.", has_marks=True)[0]
    found = put(segment, (Span(0, 15), "{KT0} jetzt rufen.", [(2, 1)]))
    assert "{KT0}" in found


@pytest.mark.parametrize(
    ("language", "best", "space"), [("de", "Ruf", " "), ("zh", "打", "")]
)
def test_code_that_is_left_out_stands_apart_where_words_do(
    language, best, space
):
    segment = read("Call <code>f()</code>", has_marks=True)[0]
    part, splitter = (Span(0, 10), best, [(0, 0)]), Splitter("en", language)
    found = put(segment, part, splitter=splitter)
    assert found.strip() == f"{best}{space}<code>f()</code>"


KEYS = "<kbd>Ctrl</kbd>+<kbd title='{KT0}'>C</kbd> is <b>it</b>"


@pytest.mark.parametrize(
    "best, expected",
    [
        ("Es ist {KT0}+{KT1}", "<b>Es</b> ist <kbd>Ctrl</kbd>+%s"),
        ("Es ist {KT1}, {KT0}", "<b>Es</b> ist %s, <kbd>Ctrl</kbd>"),
        # One that is left out stays beside its neighbour.
        ("Es ist {KT0} da", "<b>Es</b> ist <kbd>Ctrl</kbd> %s da"),
        # One that is written twice is there once.
        ("Es ist {KT0} {KT1} {KT0}.", "<b>Es</b> ist <kbd>Ctrl</kbd> %s."),
    ],
)
def test_each_mark_comes_back_once_whatever_the_model_writes(best, expected):
    segment = read(KEYS, has_marks=True)[0]
    links = [(2, 0), (1, 1), *((0, i) for i in range(2, len(best.split())))]
    found = put(segment, (Span(0, len(segment.text)), best, links))
    expected %= "<kbd title='{KT0}'>C</kbd>"
    assert found.split() == expected.split()


@pytest.mark.parametrize(
    "best, expected",
    [
        # ICU takes braces for words of their own.
        ("{KT0}。", "<b><kbd>Ctrl</kbd></b><kbd>C</kbd>。"),
        ("{KT1}{KT1}{KT0}。", "<b><kbd>C</kbd></b><kbd>Ctrl</kbd>。"),
    ],
)
def test_nothing_is_put_within_a_mark_of_chinese(best, expected):
    html = "<b>Press</b> <kbd>Ctrl</kbd>+<kbd>C</kbd>."
    segment = read(html, has_marks=True)[0]
    part = Span(0, len(segment.text)), best, []
    assert put(segment, part, splitter=EN_ZH) == expected


def test_a_sentence_has_six_marks_and_further_code_is_not_seen():
    html = "<code>x</code> " * 8 + "a. <samp>y</samp> <i translate=no>z</i>."
    assert read(html, has_marks=True)[0].text == (
        "{KT0} {KT1} {KT2} {KT3} {KT4} {KT5} a. {KT6} {KT7}."
    )


@pytest.mark.parametrize("has_marks", [False, True])
def test_code_alone_and_what_says_nothing_is_not_translated(has_marks):
    html = "<p><code>a</code>, <code>b</code><p>c <i translate=no></i> d"
    assert [x.text for x in read(html, has_marks) if x.text] == ["c d"]


def test_a_model_without_marks_does_not_see_code_and_it_comes_back_whole():
    segment = read("Call <code>f( )</code> up.")[0]
    assert segment.text == "Call up."
    found = put(segment, (Span(0, 8), "Ruf auf.", [(0, 0), (1, 1)]))
    assert found == "Ruf <code>f( )</code> auf."
    # Where a sign touched it and a word would, stands a space.
    segment = read("Two men (see <code>a</code>) run<img>.")[0]
    part = Span(0, 19), "Zwei Männer rennen", [(0, 0), (1, 1), (4, 2)]
    assert put(segment, part) == "Zwei Männer <code>a</code> rennen<img>"


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
    </textarea> <i_translate=no> <p_class="notranslate"> <foo> </foo>
    <sup> 1 < > " ' = / & &amp; &lt
    &#x41 &eacute; </ </> <? <![CDATA[ ]]> é 你 \N{NO-BREAK SPACE} \0
""".replace("\N{NO-BREAK SPACE}", "_").split()


BROKEN = "<b> </b> <i> </i> <p> </p> <foo> </foo> <img> <br> <code>q</code>"
BROKEN = [*BROKEN.split(), "<kbd>s. t</kbd>", "<sup>1</sup>"]
TAG = re.compile("<code>.*?</code>|<kbd>.*?</kbd>|<.*?>")


@given(st.lists(st.sampled_from([" ", "\n", *PIECES])).map("".join))
def test_what_nobody_changes_comes_back_byte_for_byte(html):
    html = html.replace("_", " ")
    assert returned(html) == html


@given(st.lists(st.sampled_from(["w", " ", "z ", *BROKEN])).map("".join))
def test_no_tag_is_lost_whatever_is_broken_and_comes_from_where(html):
    for has_marks in (False, True):
        found = shouted(html, backwards, has_marks)
        assert sorted(TAG.findall(found)) == sorted(TAG.findall(html))


@pytest.mark.parametrize(
    "count, unit",
    [
        *((500, x) for x in ("<b>x</b> ", "<b>(</b>", "<p>x", "<title>")),
        *((500, x) for x in ("<b>x ", "x</b> ", "<code>x</code> ", "<code>")),
        *((500, x) for x in ("<b><i>x</b></i> ", "<p translate=no>x", "12<b>")),
        *((500, x) for x in ("<i><b></i>", "<svg>x</p>", ",<img>", "<sup>1")),
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
