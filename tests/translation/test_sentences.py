"""Texts come apart into sentences, and their translations together again."""

import dataclasses
import re
import shutil
import time
import unicodedata

import numpy as np
import pytest

from keras_transformer.config import Search
from keras_transformer.run import Run
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation import text_batches
from keras_transformer.translation.sentences import Span, Splitter, search_each
from keras_transformer.translation.text_batches import Batching
from keras_transformer.translation.translator import Hypothesis, Translator

TEXT = (
    "\n  Dr. Smith came home.  He was tired.\r\n\r\n"
    "- No end here\n\t \nWho? Me!\u2003Yes. "
)
SENTENCES = ["Dr. Smith came home.", "He was tired.", "No end here"]
SENTENCES += ["Who?", "Me!", "Yes."]


def spans_of(text, language):
    return [*Splitter(language, "en").spans(text)]


def together(text, spans, parts, target_lang):
    return "".join(Splitter("en", target_lang).pieces(text, spans, parts))


def cut_out(text, spans):
    return [text[span.start : span.end] for span in spans]


def test_translations_take_the_places_of_their_sentences():
    spans = spans_of(TEXT, "en")
    assert cut_out(TEXT, spans) == SENTENCES
    assert together(TEXT, spans, SENTENCES, "en") == TEXT
    numbers = [f"<{i}>" for i in range(len(spans))]
    assert together(TEXT, spans, numbers, "en") == (
        "\n  <0>  <1>\r\n\r\n- <2>\n\t \n<3> <4>\u2003<5> "
    )


def test_sentences_without_a_space_between_get_one():
    text = "你好。再见。"
    spans = spans_of(text, "zh")
    assert together(text, spans, ["Hello.", "Bye."], "en") == "Hello. Bye."


def test_a_long_line_has_the_sentences_of_a_short_one():
    sentence = "The answer of Dr. Smith is four. "
    text = sentence * 1_009
    found = spans_of(text, "en")
    assert cut_out(text, found) == [sentence.strip()] * 1_009
    # Without an end, and with what sentencex needs long for.
    text = "“" * 20_011
    spans = spans_of(text, "en")
    assert together(text, spans, cut_out(text, spans), "en") == text


def test_any_text_comes_together_as_it_was():
    draw = np.random.default_rng(3)
    letters = [*"aB\n\r\t\f \u2028\xa0\x0b。😀", ". ", "! "]
    for _ in range(300):
        text = "".join(draw.choice(letters, draw.integers(1, 31)))
        spans = spans_of(text, "en")
        same = together(text, spans, cut_out(text, spans), "en")
        # Except for spaces between sentences that had none.
        assert re.sub(r"\s", "", same) == re.sub(r"\s", "", text)
        kept = "[\n\r\t\f\v\u2028]"
        assert re.findall(kept, same) == re.findall(kept, text)
        assert not any(re.search(kept, x) for x in cut_out(text, spans))


# So that a search is soon traced.
SHORT = dict(beam_size=1, max_length=7)


@pytest.fixture(scope="module")
def translator(small_translator):
    """One of our own, for the log tells of several sentences only once."""
    return Translator(small_translator.model, small_translator.tokenizer)


def test_every_sentence_is_translated_on_its_own(translator):
    texts = [" a dog. A meadow!\nThe dog runs. ", ""]
    texts += ["The dog of Dr. Dog runs.", " \t", "dog"]
    progress = []

    found = translator.translate(
        texts,
        split_sentences=True,
        progress=lambda *counts: progress.append(counts),
        **SHORT,
    )

    single = ["a dog.", "A meadow!", "The dog runs.", texts[2], "dog"]
    one, two, three, whole, dog = translator.translate(single, **SHORT)
    assert found == [f" {one} {two}\n{three}", "", whole, " \t", dog]
    assert found[0] != translator.translate(texts[:1], **SHORT)[0]
    assert progress[-1] == (5, 5)


def test_sentences_end_as_in_the_language_of_the_run(
    translator, small_run, tmp_path
):
    shutil.copytree(small_run, tmp_path, dirs_exist_ok=True)
    german = dataclasses.replace(
        RunConfig.load(small_run), source_lang="de", target_lang="en"
    )
    german.save(tmp_path)
    of_german = Run(tmp_path).translator(average=1)
    text = ["ein Hund, ggf. Die grüne Wiese"]  # Two, by English rules.
    for each, is_one in (translator, False), (of_german, True):
        whole = each.translate(text, **SHORT)
        split = each.translate(text, split_sentences=True, **SHORT)
        assert (split == whole) == is_one
    assert of_german.freeze("bfloat16").source_lang == "de"


def test_no_text_has_no_sentence_and_no_character_is_too_odd(translator):
    assert translator.translate([], split_sentences=True) == []
    odd = ["\ud800 dog. A dog."]
    assert translator.translate(odd, split_sentences=True, **SHORT)[0]


def test_a_text_of_several_sentences_is_named_once(small_translator, caplog):
    translator = Translator(small_translator.model, small_translator.tokenizer)
    texts = ["a dog", "The dog runs. A dog barks."]
    # Users who have chosen need no warning.
    for chosen in (False, True):
        translator.translate(texts, split_sentences=chosen, **SHORT)
    # TensorFlow advises on tracing.
    assert not [x for x in caplog.messages if texts[1] in x]
    for _ in range(2):
        translator.translate(texts, **SHORT)
    (said,) = [x for x in caplog.messages if texts[1] in x]
    assert "split_sentences=True" in said


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("Der Hund bellt. Die Katze schläft.", True),
        ("“Who is it?” “Me!”", True),
        ("你好。再见。" * 20, True),
        ("Dr. Dog met Mr. Cat in 3.5 hours, e.g. at St. Mary's.", False),
        ("你好。", False),
        ("." * 20_011 + " " * 20_011, False),
        ("Он заплатил 100 руб. за книгу.", False),
        ("ខ្ញុំទៅផ្ទះ។ គាត់មក។", True),
        ("இது. அது.", True),
        ("डॉ. राम आए.", False),  # Dr. Ram.
        (unicodedata.normalize("NFD", "Tôi về nhà rồi. Ông ấy đến."), True),
    ],
)
def test_several_sentences_are_told_from_one(text, is_told, caplog):
    assert text_batches.warn_of_several([text]) == is_told
    assert (text[:5] in caplog.text) == is_told


@pytest.mark.parametrize(
    "clause",
    [
        *("word and word " * 300, "word, " * 700, "字字，字字字" * 700),
        *("字字，１，０００" * 700, "ก็" * 1_500),
    ],
    ids=["words", "commas", "Chinese", "numbers", "marks"],
)
def test_a_clause_without_an_end_is_cut_at_the_least_bad_place(clause):
    spans = spans_of(clause, "en")
    assert len(spans) > 1
    parts = cut_out(clause, spans)
    assert together(clause, spans, parts, "th").replace(" ", "") == (
        clause.replace(" ", "")
    )
    for part in parts[:-1]:
        assert part[-1] in "，," or part.endswith(("word", "and", "ก็"))
    for part in parts[1:]:
        assert not unicodedata.combining(part[0]) and part[0] != "０"


def test_a_long_mark_is_not_cut_in_half():
    text = "a <term>b c d e f g<as>h i j k</term> l"
    halves = Splitter("en", "de").halves(text, Span(0, len(text)))
    assert cut_out(text, halves) in (["a", text[2:]], [text[:-2], "l"])


@pytest.mark.parametrize(
    "code, expected",
    [
        ("de", "Hallo. Tschüs.\n Ja. Nein."),
        ("ja", "Hallo.Tschüs.\n Ja.Nein."),
        # With none between words, but one between sentences.
        ("th", "Hallo. Tschüs.\n Ja. Nein."),
    ],
)
def test_between_sentences_stands_what_the_target_puts_there(code, expected):
    text = "Hello. Bye.\n Yes. No."
    parts = ["Hallo.", "Tschüs.", "Ja.", "Nein."]
    assert together(text, spans_of(text, "en"), parts, code) == expected


def test_a_number_between_sentences_gets_the_space_of_the_target():
    text, splitter = "1.本を買う。[1]家に帰る。※", Splitter("ja", "en")
    spans = [*splitter.spans(text)]
    found = splitter.pieces(text, spans, ["I buy it.", "I go."])
    assert "".join(found) == "1. I buy it. [1] I go. ※"


def test_a_tag_goes_before_each_sentence():
    asked = []

    class Upper:
        source_lang, target_lang = "en", "de"

        def search_texts(self, texts, search, batching, terms):
            asked.extend(texts)
            found = [[Hypothesis(text.upper(), 0.0)] for text in texts]
            return found, [False] * len(texts)

    texts = [" >>fra<< A dog. A cat.", "A dog. A cat."]
    assert together(texts[0], spans_of(texts[0], "en"), "xy", "en") == "x y"
    found, _ = search_each(Upper(), texts, Search(), Batching())
    assert asked == [">>fra<< A dog.", ">>fra<< A cat.", "A dog.", "A cat."]
    assert [hypothesis.text for (hypothesis,) in found] == [
        *(">>FRA<< A DOG. >>FRA<< A CAT.", "A DOG. A CAT.")
    ]


@pytest.mark.parametrize(
    "code, marked",
    [
        # "He came. He said: Yes.": the particle belongs to what it follows.
        ("ja", "⟨彼は来た。⟩⟨「はい。」と言った。⟩\n⟨「行く？」の一言。⟩"),
        ("ja", "⟨「行く。」で終わる。⟩\n⟨「行く。」だった。⟩"),
        ("ja", "⟨「行く。」から始まる。⟩\n⟨「行く。」⟩⟨でも来た。⟩"),
        ("ja", "⟨「行く。」⟩⟨やっと来た。⟩\n⟨「はい。」⟩⟨彼女は来た。⟩"),
        ("ja", "⟨株式会社Ａ．Ｂ．Ｃ．は⟩\n⟨日本vs.ブラジル。⟩⟨はい。⟩"),
        ("zh", "⟨“这是对的。”他说。⟩⟨我不信。⟩\n⟨“走吧。”⟩⟨天黑了。⟩"),
        ("zh", "⟨“好。”就走了。⟩⟨“是的！”她答。⟩\n⟨「好！」他笑道：走。⟩"),
        ("zh", "⟨“是的！”⟩⟨她答应了。⟩\n⟨“是的！”⟩⟨她知道。⟩⟨点“？”图标。⟩"),
        ("zh", "⟨“加油！”的声音。⟩⟨读“Dr. No”。⟩\n⟨我读J.K.罗琳的书。⟩⟨好。⟩"),
        ("zh", "⟨我在U.S. Navy。⟩\n⟨我是小明.⟩⟨再见⟩\n⟨“是的！”⟩⟨她走了。⟩"),
        ("zh", "⟨见 Fig. 3 和 vol. 2, pp. 10 页。⟩⟨9:00 a.m. 开始。⟩"),
        ("zh", "⟨他问：“去吗？”⟩⟨他说：“去。”⟩\n⟨“走。”便走了。⟩⟨“好。”⟩"),
        ("ja", "⟨「はい…。」と言う。⟩⟨『え？』だ。⟩⟨「え。」⟩⟨だんだん来た。⟩"),
        # Before a digit, within a sentence, and behind a title.
        ("zh", "⟨他生于1990年。⟩⟨2010年他去了。⟩\n⟨他走了——真的！——没回来。⟩"),
        ("zh", "⟨——真的！⟩⟨——没回来。⟩\n⟨什么？⟩⟨——他吃了一惊。⟩"),
        ("zh", "⟨她大喊“救命！”，然后跑了。⟩\n⟨《什么？》是一本书。⟩⟨好。⟩"),
        ("ja", "⟨彼は来た。⟩⟨……私は読んだ。⟩⟨——はい。⟩\n⟨来た！⟩⟨…彼だ。⟩"),
        ("ja", "⟨本当？⟩⟨5回。⟩⟨３．１４です。⟩⟨次。⟩⟨何名様?⟩⟨2名です!⟩"),
        ("ja", "1．⟨東京。⟩\t2．⟨大阪。⟩\n1. ⟨東京。⟩2. ⟨大阪。⟩"),
        ("ja", "⟨え？と声。⟩⟨娘。の歌。⟩⟨順⟩ 1. ⟨割る⟩ 2. ⟨切る⟩ 3. ⟨焼く⟩"),
        # Without a list, "2." may belong to the month after it.
        ("de", "1. ⟨Er kam.⟩ 2. ⟨Sie ging.⟩\n⟨Er kam am 2. Mai.⟩"),
        ("el", "⟨Ναι\u037e⟩ ⟨Όχι.⟩"),
        # Numbers of a list, bullets and dashes in cells are no sentences.
        ("en", "1. ⟨He came.⟩ 2. ⟨She left.⟩\n1) ⟨Do.⟩ 2) ⟨Go.⟩ ⟨Up.⟩ 3) ⟨It⟩"),
        # Such numbers belong to their sentences.
        ("en", "⟨1.5 million came by Jan. 2.⟩\n1. ⟨See Fig. 12.⟩"),
        ("en", "1. ⟨See Fig. 2.⟩ ⟨Go.⟩\n1.2 ⟨Art. 2.⟩\n\t1. ⟨By Sept. 9.⟩ ⟨I⟩"),
        ("en", "•\t⟨He came…⟩ ⟨She left.⟩\n⟨He came.⟩¹ ⟨She left.⟩(2)"),
        ("de", "⟨1,5 kg bis Nr. 2.⟩ ⟨Gut.⟩\n1.5 ⟨Sie kam. 2.⟩ ⟨Er.⟩"),
        ("de", "⟨Er kam!⟩ ⟨5 Hunde.⟩ ⟨3 Männer mit max. 2 Hunden.⟩"),
        ("ja", "⟨来た。⟩※1 ⟨5着。⟩*⟨5個。⟩*1⟨行く。⟩※２：⟨No. 1は犬。⟩"),
        # The number of a footnote in brackets, but only there.
        ("en", "⟨He came.⟩[1] ⟨She left.⟩[2][3]\n⟨He paid 3.5 to Dr.⟩[1]"),
        ("en", "⟨He came.⟩1 ⟨See [1].⟩ ⟨Fig.1 Shows it.⟩"),
        ("en", "⟨He came.⟩ [1] [12] ⟨A dog.⟩ [b]\n⟨U.S. came.⟩\n⟨U.S.⟩"),
        ("ja", "⟨来た。⟩[1]⟨行く。⟩⟨[保存]を押す。⟩[注 12]⟨来た。⟩😀⟨行く。⟩"),
        # What shows a mood stays before a sentence, not within one.
        ("en", "😀 ⟨He came.⟩ ❤️ ⟨It ran.⟩ 👨‍👩‍👧👍🏽\n⟨Dr. 😀 Dog came.⟩"),
        ("en", "⟨He came…⟩ 😀 ⟨It I ❤ ran.⟩\n⟨(He came.)⟩ ★ ⟨It ran.⟩"),
        ("de", "✓ ⟨Er kam⟩ ✓ ⟨Sie geht⟩ ✅ ⟨Es lief⟩\n⟨4,5 ★ von 5⟩"),
        ("en", "⟨It ran⟩ 😀😀\n⟨A dog⟩👍🏽\n⟨I do⟩ ❤️ \n⟨Two⟩ ❤️‍🔥🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
        ("en", "⭐ ⟨He ran.⟩ ⏰ ⌚ ⬆️ ㊗️ ⟨It ran.⟩\n▶️⬛◾ ⟨It⟩ ⏰\n‼️ ⟨No.⟩"),
        # A digit in a box is one within a sentence, "‼" two marks behind it.
        ("en", "1️⃣ ⟨It ran⟩ 2️⃣\n⟨Press 1️⃣ now‼⟩"),
        # A joiner that belongs to a letter.
        ("ml", "⟨അവന്‍⟩"),
        # Lists within a line, and commas before their numbers.
        ("zh", "⟨步骤：⟩1.⟨打开。⟩2.⟨取出。⟩\n1. ⟨打开⟩2. ⟨取出⟩3. ⟨关上⟩"),
        ("ja", "⟨手順：⟩１．⟨開ける。⟩２．⟨取る。⟩\n⟨部：⟩1、⟨犬，⟩2、⟨猫。⟩"),
        ("en", "⟨Steps:⟩ 1. ⟨Open it.⟩ 2. ⟨See Fig. 3.⟩ 3. ⟨Shut it.⟩"),
        # The sentences of a quotation are sentences, its end is in the last.
        ("en", "⟨“I ran.⟩ ⟨I sat,” he said.⟩ ⟨'It?' I asked.⟩ ⟨“I?” Al said.⟩"),
        ("en", '⟨"Size r".⟩ ⟨(He ran.⟩ ⟨It sat.)⟩ ⟨"No."⟩ ⟨"Yes."⟩'),
        ("ja", "⟨「来た。⟩⟨見た。」と言った。⟩\n⟨○○さんが来た。⟩"),
        ("ja", "⟨『次。⟩⟨次。』⟩⟨（来。⟩⟨た。）⟩⟨(来。)⟩⟨次。⟩"),
        ("zh", '⟨他说："我来了。⟩⟨我走。"⟩⟨好。⟩⟨“来了。”⟩⟨“走！”。⟩'),
        ("de", "⟨»Ja.⟩ ⟨Nein.«⟩ ⟨„So.⟩ ⟨Ja“, sagt er.⟩ ⟨‚Dr. Ey kam.⟩ ⟨Ja.‘⟩"),
        ("fr", "⟨L’A.G. et R.I.B. vu.⟩ ⟨Il : « Oui.⟩ ⟨Non… »⟩ ⟨Un vol.⟩ ⟨Il⟩"),
        ("ko", '⟨"네."라고 했다.⟩ ⟨"갔다.⟩ ⟨봤다."라고 했다.⟩ ⟨(네.⟩ ⟨네.)⟩'),
        # A lost space behind capitals.
        ("en", "⟨We left the USA.⟩⟨She came.⟩ ⟨ASP.Net and VB.NET ran.⟩"),
        ("zh", "⟨他生于1990。⟩⟨2010年他去了。⟩⟨3。5元。⟩\n1. ⟨北。⟩2. ⟨上。⟩"),
        # Behind a title, or an initial that begins no list.
        ("fr", "⟨M. Martin dort.⟩ ⟨Le chien de M. Martin.⟩ ⟨Le Dr. Martin.⟩"),
        ("es", "⟨Vino.⟩ ⟨D. Juan duerme.⟩\n⟨Está bien.⟩ ⟨Vamos.⟩"),
        ("en", "A. ⟨He came.⟩ B. ⟨She left.⟩\n⟨So:⟩ a) ⟨I do.⟩ b) ⟨Go.⟩ ⟨No.⟩"),
        # Names and formats that begin with a point, or hold one.
        ("fr", "⟨Le .NET de « %s.%s » va de 0..%d à ~/.x.⟩ ⟨Il court.⟩"),
        # Where sentencex begins no sentence with a digit.
        ("cs", "⟨Přišel domů.⟩ ⟨20 psů čeká, viz odst. 5, doma.⟩ ⟨2 spí.⟩"),
        ("da", "⟨De kom hjem!⟩ ⟨20 hunde på 5 min. 20 s sov.⟩ ⟨%s sov.⟩"),
        ("fi", "⟨He tulivat.⟩ ⟨2024 oli hyvä, puh. 050 ei ole.⟩ ⟨3,5 km.⟩"),
        # German ordinals.
        ("de", "⟨Im 19.Jahrhundert.⟩ ⟨Am 1.3. (Mai) am 2. und 3. Tag.⟩"),
        ("de", "⟨Er ist 19.⟩ ⟨Nein.⟩\n⟨1. FC am 3. Tag⟩\n⟨stau.⟩ ⟨geht.⟩ ⟨ja⟩"),
        # A small letter goes on behind an abbreviation.
        ("es", "⟨Vino a las 5 p. m. ayer.⟩\n⟨En 1920 d. C. y murió.⟩"),
        # But many write without capitals, and some names begin with none.
        ("en", "⟨he came.⟩ ⟨she left.⟩\n⟨I sat.⟩ ⟨iPad left.⟩"),
        ("en", "⟨It ran.⟩ ⟨then it slept.⟩\n⟨It ran at 5 p.m. yesterday.⟩"),
        ("es", "⟨El perro ladraba.⟩ ⟨luego vino.⟩\n⟨Un día.⟩[2]\u200b ⟨Dos.⟩"),
        ("en", "⟨He came.⟩[note 1] ⟨Go.⟩[citation needed] ⟨It ran.⟩[1,2]"),
        ("en", "⟨He came.⟩[1–3] ⟨She left.⟩[^1] ⟨It ran.⟩¹,² ⟨No.⟩[^2]"),
        # Addresses alone stay.
        ("en", "https://a.com/a?b=1\tme@b.com\n<www.example.com>\n⟨No.⟩"),
        ("en", "⟨Is http://x.com/A.PDF?T=Me?⟩\n⟨See a.b.C.Str of Sys.Out.p.⟩"),
        # Of a list without ends.
        ("en", "1. ⟨Flour⟩ 2. ⟨Eggs⟩ 3. ⟨Milk.⟩\n⟨Fig. 1.⟩ ⟨A 2.⟩ ⟨B 3.⟩ ⟨C⟩"),
        ("de", "1. ⟨Ein Hund⟩  2. ⟨Ein Tor⟩\n⟨1. Liga, 2. Liga, 3. Liga⟩"),
        ("ja", "１．⟨犬⟩　２．⟨猫⟩\n⟨｢来た。｣と言う。⟩⟨｢はい。｣⟩⟨次。⟩"),
        # Marks of a list within a sentence, which goes no further.
        ("de", "⟨Ziel ist a) Ulm oder b) Köln.⟩ ⟨Er kam.⟩ ⟨Sie ging.⟩"),
        ("de", "⟨Preis: (a) 5 €, (b) 7 €.⟩ ⟨Tor: Ey (9) Al (7).⟩ ⟨Ja.⟩"),
        ("en", "⟨Who?⟩ A) ⟨Al⟩ B) ⟨Bo⟩ C) ⟨Cy.⟩ ⟨It ran.⟩ ⟨I sat.⟩"),
        ("en", "⟨Team A) Al; Team B) Bo.⟩ ⟨We meet at 3.⟩ ⟨It ran.⟩"),
        # Words that sentencex takes for abbreviations.
        ("cs", "⟨Řekl to nám.⟩ ⟨Nevím co.⟩ ⟨Bydlí Brno, nám. Míru.⟩ ⟨Ano.⟩"),
        ("da", "⟨Det er en del.⟩ ⟨Jeg så Mia.⟩ ⟨Kun 50 kr.⟩ ⟨Det 19. år.⟩"),
        ("de", "⟨Wir sahen Jan.⟩ ⟨In der Art.⟩ ⟨Nach Art. V Abs. 2.⟩"),
        ("de", "⟨Es war kalt.⟩ ⟨Mai und Juni nicht.⟩ ⟨Am 5. Mai?⟩ ⟨März?⟩"),
        ("en", "⟨He comes in May.⟩ ⟨A dog was fed.⟩ ⟨A cat of Dr. Ott ran.⟩"),
        ("es", "⟨Votó en contra.⟩ ⟨Son 5 km.⟩ ⟨El Sr. Paz vio su auto.⟩ ⟨Sí.⟩"),
        ("fr", "⟨Ils sont sept.⟩ ⟨Le 5 sept. 2020.⟩ ⟨Mme Roy court.⟩"),
        ("hu", "⟨Azt mondta, hogy nem.⟩ ⟨Dr. Nagy jön.⟩"),
        ("it", "⟨Non lo so.⟩ ⟨Fu tre anni fa.⟩ ⟨È in USA.⟩ ⟨IL SIG. PO.⟩"),
        ("nl", "⟨Dat is best.⟩ ⟨Ik zag zijn hand.⟩ ⟨Dr. Bos kwam.⟩"),
        ("pt", "⟨Foi o que eu vi.⟩ ⟨É do século XIX.⟩ ⟨O Dr. Paz.⟩"),
        ("sv", "⟨Vi ses i maj.⟩ ⟨Kom med.⟩ ⟨Dr. Ek kom.⟩"),
        # A mark of a term is one word.
        ("en", "⟨It is <term>Hi! A<as>U. S</term> big.⟩"),
        ("en", "⟨He ran.⟩ ⟨<term>A. B<as></term> is.⟩"),
        ("en", "⟨It <term>Hi!⟩ ⟨A<as>.⟩ ⟨No.⟩"),
        # A sentence in brackets ends as others do, an abbreviation does not.
        ("en", "⟨(He came.)⟩ ⟨She left.⟩ ⟨(It ran!)⟩ ⟨[Yes, all of it.]⟩"),
        ("en", "⟨No.⟩\n⟨He (a man.) came.⟩ ⟨(Dr.) Dog.⟩\n–\n⟨Wait… he came.⟩"),
        ("de", "⟨(geb.) Kohl.⟩ ⟨(Er kam.) und⟩\n1. ⟨Abb. 12.⟩ ⟨„Ja …“⟩ ⟨Er.⟩"),
        # A quotation mark behind a space opens, in every style.
        ("de", "⟨Sie ging.⟩ ⟨‚Ja.‘⟩ ⟨‚Gut‘, sagt er.⟩ ⟨„Nein!“⟩\n⟨na?⟩ ⟨ja⟩"),
        ("de", "⟨»Ja!« rief er.⟩\n⟨Sie ging.“⟩ ⟨Er kam.‘⟩ ⟨Ja.»⟩ ⟨Nein.⟩"),
        ("en", "⟨He ran.⟩ ⟨‘Yes.’⟩ ⟨‘It’s so,’ he said.⟩ ⟨“No!”⟩"),
        ("en", "⟨He ran.⟩ ⟨'No.'⟩ ⟨\"Yes.\"⟩ ⟨It is 3:1.⟩ ⟨0:2.⟩ ⟨<i>No.</i>⟩"),
        ("en", '⟨“We came.⟩ ⟨It ran.⟩\n⟨A 27" screen.⟩ ⟨A 5" pipe.⟩'),
        ("sv", "⟨Han kom.⟩ ⟨’Ja’, sa hon.⟩ ⟨”Nej.”⟩ ⟨’Jo!’⟩"),
        ("fr", "⟨Il vint.⟩ ⟨« Oui. »⟩ ⟨« Non », dit-il.⟩ ⟨L’art. 5 dit non.⟩"),
        ("nl", "⟨Hij kwam.⟩ ⟨’s Avonds at hij o.a. brood.⟩ ⟨‘Nee!’⟩"),
        ("cs", "⟨„Ano!“ řekl.⟩ ⟨Ne.⟩ ⟨Firma C.K.D. a Č.S.A. jsou.⟩"),
        # Between words that belong together, before a year, and in laws.
        ("en", "⟨Tel./Fax: 5, Mon.–Fri. 9 to 5.⟩ ⟨Ey et al. (2019), Eq. 5.⟩"),
        ("de", "⟨10 Stk./Pck.⟩ ⟨Tel./Fax: 5.⟩ ⟨Im 17./18. Jh. 5 (1: 4) Tore.⟩"),
        ("fr", "⟨L’art. L. 121-1 du 14 juill. 1989.⟩ ⟨Il dit : art.⟩ ⟨L’un.⟩"),
        ("ru", "⟨Абз. 3, т. е. да.⟩ ⟨Тут 5 чел./км².⟩ ⟨5 чел. (2024)[7].⟩"),
        ("uk", "⟨Мал. 3.⟩ ⟨Див. розд. 5.⟩ ⟨Тут 300 ос./км².⟩ ⟨Пн.–Пт. з 9.⟩"),
        # Between texts in a line stands a border, in a product none.
        ("de", "⟨Start⟩ » ⟨Shop⟩ > ⟨Tee⟩\n⟨Ja »Du« da⟩\n⟨In A > B > C.⟩"),
        ("ja", "⟨トップ⟩\u3000＞\u3000⟨くらし⟩\xa0>\xa0⟨ごみ⟩ ＞ ⟨びん⟩"),
        ("en", "⟨A man⟩ | ⟨A dog.⟩ • ⟨Home⟩ · ⟨News⟩ |\n⟨5 · 3 is 15.⟩"),
        ("en", "⟨A man⟩  |  ⟨A dog.⟩\xa0 • \xa0⟨Home⟩  ·  ⟨Go.⟩  — ⟨It ran.⟩"),
        ("de", "⟨Müller⟩ · ⟨Am Tor 5⟩ · ⟨12345 Berlin⟩  •  ⟨Es ist 5 • 3⟩"),
        # A soft hyphen parts no word, such as "Hotel" from "Tel."
        ("de", "⟨Ein Ho\xadtel.⟩ ⟨Es war klein.⟩\n⟨der um\xadbau.⟩ ⟨da⟩"),
        ("en", "⟨A bike[1] and¹ a dog.⟩[2]: 12 ⟨Two.⟩[3][note 1] ⟨It ran.⟩12"),
        # Ordinals of German, and numbers of a list.
        ("de", "⟨2. Weltkrieg⟩\n⟨II. Weltkrieg⟩\n⟨1. FC Köln⟩\n⟨IV. Quartal⟩"),
        ("de", "⟨3. Oktober⟩\n1. ⟨Siehe dort.⟩\nII. ⟨Sie.⟩\n⟨Mi., 5. Mai⟩"),
        ("ja", "・⟨犬⟩\n●⟨犬・猫⟩\n①⟨犬⟩ ・⟨「猫」⟩\n（2）⟨猫⟩\n３）⟨猫⟩"),
        ("zh", "·⟨李·王⟩\n※⟨2楼⟩\n※1 ⟨税后⟩\n※２：⟨周日⟩"),
        ("ja", "⟨無料。⟩※⟨３歳から。⟩※⟨12月も。⟩※⟨1・2階だ。⟩※1 ⟨はい。⟩※2"),
        ("ja", "⟨2、3匹⟩\n⟨次。⟩⟨犬ver. 2だ。⟩⟨（笑った。）⟩⟨2 (a) 5 (b) 犬⟩"),
        # "Compare (1) and (2)": a sign before a particle is a word.
        ("ja", "⟨①と②を見る。⟩⟨（1）に入る。⟩\n⟨下線 ①の訳。⟩⟨[1]を押す。⟩"),
        ("ja", "⟨①〜④から選ぶ。⟩⟨③が犬。⟩⟨※印は駅。⟩①⟨のり⟩\n①⟨はい。⟩"),
        ("ja", "⟨BERT (Ey, 2019) と犬 (図 2) だ。⟩⟨式 (1) と (2) を見る。⟩"),
        ("zh", "⟨看图。⟩⟨①和②不同。⟩⟨（1）的答案。⟩\n①⟨和平。⟩②⟨付款。⟩"),
        ("zh", "1、⟨北京。⟩2、⟨上海。⟩⟨（他笑了。）⟩⟨他来了。⟩⟨（笑）好。⟩"),
        # Abbreviations, and words that look like one at an end.
        ("ru", "⟨См. рис. 3.⟩ ⟨«Да!» — сказал он.⟩ — ⟨Да! — сказал он.⟩"),
        ("hi", "⟨वह ५.५ कि.मी. दूर है।⟩ ⟨डा. राम आए|⟩ ⟨“कब?” उसने पूछा।⟩"),
        ("mr", "⟨हे केले मी.⟩ ⟨ते ५ मी. लांब.⟩"),
        ("ar", "⟨جاء د. أحمد.⟩ ⟨«هل جاء؟» قال علي.⟩ ⟨(هل جاء؟)⟩ ⟨نعم.⟩"),
        ("ur", "1. ⟨ڈ. احمد آیا۔⟩2. ⟨ہاں۔⟩"),
        ("bg", "⟨И. Вазов, ж.к. Младост, бл. 5.⟩ ⟨Да.⟩ ⟨Цена 5 лв.⟩ ⟨Не.⟩"),
        ("uk", "⟨Див. рис. 3.⟩ ⟨Із 5 бер. 1990 р.⟩ ⟨Це 5 хв.⟩ ⟨Ні.⟩"),
        ("ru", "⟨Я дал им.⟩ ⟨Был 1941 г.⟩ ⟨В сад им. А. С. Ли.⟩ ⟨5 °С.⟩ ⟨Да.⟩"),
        ("ru", "⟨Пн.–пт. с 9.⟩ ⟨Арт. 5.⟩ ⟨Тут 5 м/с.⟩ ⟨С.С.С.Р. и С.Ш.А.⟩"),
        ("ru", "⟨Хлеб и т. д.⟩ ⟨Был XX в.⟩ ⟨Но что?.. спросил Дж. Смит.⟩"),
        ("de", "⟨Fa. Ey, Parkstr. 5, Ulm usw.⟩ ⟨Gem. § 5, 5 Pck. Ei ü. NN.⟩"),
        ("de", "⟨Das freut mich.⟩ ⟨Ein Bart, inkl. MwSt.⟩ ⟨Abt.: Verkauf.⟩"),
        ("de", "⟨Max. Last: 5 g.⟩ ⟨Ich bin Max.⟩ ⟨Es war 2:1.⟩ ⟨Dr. jur. Ey.⟩"),
        ("de", "⟨An Fam. Ey, Hof 5, 3. OG⟩\n⟨Ey, 1. Rat.⟩ ⟨Ort: 1. Etage⟩"),
        ("de", "⟨Hbf. – Köln.⟩ ⟨§ 5 ist.⟩ ⟨8.45 mtl. 9 erm. 8 W.⟩ ⟨Karl.⟩ ⟨J⟩"),
        ("fr", "⟨En janv. 52 av. J.-C.⟩ ⟨Mme. J.-P. Ey, BD.⟩ ⟨No. 5, Bd. X.⟩"),
        ("pt", "⟨Ver pág. 5, p. ex. n.º 5.⟩ ⟨Em 44 a.C. em Roma.⟩"),
        ("en", "⟨No.⟩ ⟨It is art.⟩ ⟨OK.⟩ ⟨I won't.⟩ ⟨VAT no. GB 5.⟩"),
        ("en", "00:00:01,000 --> 00:00:03,000\n⟨_Go._⟩ ⟨No :( I go.⟩ ⟨Yes :)⟩"),
        ("sv", "⟨Det är hon.⟩ – ⟨Nej.⟩ – ⟨”Jo!”⟩ ⟨Den är t.ex. svart.⟩"),
        ("km", "⟨ខ្ញុំទៅផ្ទះ។⟩ ⟨គាត់មក។⟩"),
        ("bo", "⟨ང་བདེ་པོ་ཡིན།⟩ ⟨ཁྱེད་རང་། །⟩"),
        # A name with points is one word, but a space may be lost.
        ("en", "⟨ASP.NET is in C:\\Me\\File.TXT.⟩\n⟨He came.⟩⟨She left.⟩"),
        ("ja", "⟨https://x.com/a.php?Title=Aを開く。⟩⟨次。⟩"),
        # One small letter goes on too, and a line may begin with a digit.
        ("pl", "⟨W 1990 r. latem.⟩\n⟨5 maja 1920 r. w tzw. Dom itp.⟩ ⟨Tak.⟩"),
        ("hr", "⟨Rođen je 1920. u Zagrebu.⟩"),
        ("hu", "⟨2026. január 5-én jött.⟩ ⟨A VIII. ker. Budapest.⟩ ⟨Igen.⟩"),
        ("it", "⟨Nel 44 a.C. morì a S. Ugo ecc.⟩ ⟨S. Pio.⟩ ⟨Nel 44 d. C. no.⟩"),
        # A name may begin with a small letter.
        ("ja", "⟨終わり。⟩⟨iPhoneを買った。⟩⟨pHは7だ。⟩⟨x軸。⟩"),
        ("ja", "⟨〝引用。〟と言う。⟩⟨〝引用。〟⟩⟨次。⟩"),
        ("de", "⟨Er kam.⟩ ⟨›Gut.‹⟩ ⟨Ja.⟩ ⟨Dr.-Ing. Dog, Dipl.-Päd. Cat.⟩"),
        ("de", "* ⟨Inkl. gesetzl. MwSt. von Art.-Nr. SW10, Art. Nr. 1.⟩ ⟨So.⟩"),
        ("de", "⟨(z. B. Nut u. a.) nach lit. f) DSGVO.⟩ ⟨Mit 25 km/h.⟩ ⟨Ja.⟩"),
        ("de", "⟨Jeden 1. Samstag bis Sept. 2024, So. Ruhetag.⟩ ⟨So.⟩ ⟨Ruhe.⟩"),
        ("de", "⟨Es kostet 5.- Euro.⟩ ⟨Nun i.d.R. Montag.⟩ ⟨Es ist ABS.⟩"),
        ("ru", "⟨С 5 янв. 1990 по 6 нояб. 1990.⟩ ⟨Ген. Попову, т. е. 5.⟩"),
        ("nb", "⟨Se f.eks. Oslo, dvs. Norge.⟩ ⟨Den koster 5 kr.⟩ ⟨Ja.⟩"),
        ("ro", "⟨Str. Mihai și dna. Pop.⟩ ⟨Vine.⟩"),
        ("en", "⟨See Sect. 5 by Thurs. May 5.⟩ ⟨By 5 p.m. ET or 2 hrs. on.⟩"),
        ("en", "⟨So good!!⟩ ⟨Ott (D-N.Y.) ran.⟩ ⟨At 12 W. Ely St. (B).⟩"),
        ("en", "⟨A 1-in. tin at 5 degrees F.⟩ ⟨So p < .05.⟩ ⟨Go (Rom. 8:2).⟩"),
        (
            "en",
            "⟨See Who am I? or ask.⟩ ⟨By Sat. May 6 for $9/mo.⟩ ⟨It⟩ […] ⟨B⟩",
        ),
        ("en", "⟨A B.Sc. in Item No. A-1, Pkg. (8 oz.) of 5 mg. each.⟩ ⟨No.⟩"),
        ("en", "⟨Mon. to Fri. - Tue. & Wed. at 5.⟩ ⟨I ran Sat.⟩ ⟨A incl. VAT⟩"),
    ],
)
def test_what_sentencex_does_not_know_is_known(code, marked):
    text = re.sub("[⟨⟩]", "", marked)
    assert cut_out(text, spans_of(text, code)) == re.findall("⟨(.*?)⟩", marked)


@pytest.mark.parametrize(
    "mark",
    [
        *("• ", "- ", "– ", "·\xa0", "*\t", "☐ ", "✓ ", "→  ", "1) ", "12) "),
        *("a) ", "(a) ", "(1) ", "ii) ", "[1] ", "a. ", "o\t", "• ☐ ", "– 1. "),
        # Quotes of e-mail, Markdown, numbers, and marks that nobody sees.
        *("> ", ">> ", "> > ", "# ", "###### ", "- [x] ", "[ ] ", "+ ", "| "),
        *("ii. ", "IV. ", "3a. ", "1.) ", "1- ", "1/ ", "1.1 ", "12.3.1  "),
        *("** ", "*) ", "¹ ", "*", "**"),
        *("\u200b• ", "\u200e- ", "\ufeff> "),
    ],
)
def test_a_bullet_or_number_before_a_line_stays_as_it_is(mark):
    text = f"\n{mark}A dog ran.\n  {mark}Two dogs. Three."
    spans = spans_of(text, "en")
    assert cut_out(text, spans) == ["A dog ran.", "Two dogs.", "Three."]
    assert together(text, spans, ["x", "y", "z"], "de") == (
        f"\n{mark}x\n  {mark}y z"
    )


@pytest.mark.parametrize(
    "line",
    [
        *("-5 degrees", "--flag is", "*A* dog", "A. Smith came", "$ 5 is paid"),
        *(
            "z. B. Hunde",
            "u. A. Hund",
            "o dog",
            "§ 5 says",
            "1.5 dogs",
            "1)a",
            "**A** dog",
        ),
        *("#tag is", "5- bis 6-jährige Hunde", ">5 dogs", "1/2 dog"),
    ],
)
def test_what_only_looks_like_a_bullet_belongs_to_its_line(line):
    assert cut_out(line, spans_of(line, "de")) == [line]


def test_a_long_list_keeps_its_numbers_to_the_end():
    words = ["Er kam aus dem Haus.", "Sie ging in den Garten."] * 49
    text = " ".join(f"{i}. {word}" for i, word in enumerate(words, 1))
    found = cut_out(f"{text}\n{text}", spans_of(f"{text}\n{text}", "de"))
    assert len(text) > 2_048 and found == words * 2


@pytest.mark.parametrize("syllable", ["นี่", "ကို", "हिं", "ญុំ"])
def test_a_long_line_is_not_cut_before_a_mark(syllable):
    for start in range(6):
        text = "a" * start + syllable * 2_003
        first, second, *_ = spans_of(text, "th")
        assert first.end == second.start
        assert unicodedata.category(text[second.start])[0] != "M"


@pytest.mark.parametrize("part", [".", "!", "\u200b", "www.!", "“", "- ", ".a"])
def test_no_text_takes_time_with_the_square_of_its_length(part):
    def seconds(length):
        before = time.thread_time()
        list(Splitter("en", "de").spans("a" + part * (length // len(part))))
        return time.thread_time() - before

    # Of four times the length, so 16 times with the square.
    assert seconds(40_000) < 10 * seconds(10_000) + 0.2
