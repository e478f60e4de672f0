"""What a corpus is said to be cleaned of."""

import html

import numpy as np
from sample_runs import digit_corpus, digit_tokenizer

from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.inspection import Inspection
from keras_transformer.data.records import TokenisedCorpus

CLEAN = [(f"source of number {i:06}", f"target {i:06}" + 33 * "x")
         for i in range(1_009)]  # fmt: skip
DIRTY = [
    *7 * [CLEAN[5]],
    *[(f"this is no translation {i}",) * 2 for i in range(5)],
    *[("", "empty"), (" \u00a0", "blank"), ("blank", "\t")],
]  # fmt: skip


def look(pairs):
    inspection = Inspection(open_corpus({"train": CLEAN}))
    assert list(inspection.watch(pairs)) == pairs
    return inspection


def test_pairs_that_spoil_a_training_are_counted():
    found = look(CLEAN + DIRTY)
    assert (found.pairs, found.repeated()) == (1_009 + 7 + 5 + 3, 7)
    assert (found.equal, found.empty) == (5, 3)
    (advice,) = found.advice(too_long=11)
    for said in (
        *("Of 1,024 training pairs 7 repeated (0.7 %), 5 equal sides",),
        *("3 empty", "11 too long"),
    ):
        assert said in advice
    # One in more than a thousand is no reason for a line.
    assert look(CLEAN + CLEAN[:1]).advice(too_long=1) == []
    assert look([]).advice(too_long=0) == []


def test_what_web_pages_and_wrong_encodings_leave_is_counted():
    text = "Übergrößen 's nachts, – 6 .5 < 6 & mehr, AT&T; Ação, <bt> Â."
    odd = text.encode().decode("latin-1"), html.escape(html.escape(text))
    lines = [(text, text[1:]), ("a</b>", "<br>"), ("x", odd[0]), (odd[1], "�")]
    # As English tokenisers write them, but neither Dutch nor .5 above.
    lines += [("a @-@ b", "c"), ("a", "b ."), ("a 's b", "c"), ("do n't", "b")]
    found = look(lines * 5)
    counts = {"entities": 5, "tags": 5, "mojibake": 10, "tokenisation": 20}
    assert found.leftovers == counts
    assert "5 with entities, such as &amp;gt; (12.5 %)" in found.advice(0)[0]


def test_chinese_and_japanese_read_wrongly_or_with_spaces_are_counted():
    texts = ["我是学生。", "彼は学生です。", "मैं छात्र हूँ।", "나는 학생이다."]
    read = [text.encode().decode("latin-1") for text in texts]
    # The five bytes that Windows-1252 lacks stay, as in a browser.
    read += [
        "".join(
            bytes([x]).decode("cp1252", "ignore") or chr(x)
            for x in text.encode()
        )
        for text in texts
    ]
    read += [texts[0].encode("gbk").decode("latin-1"), "I ran. ðŸ˜€"]
    read += ["Привет".encode("cp1251").decode("latin-1"), "縺薙ｌ縺ｯ"]
    read += [(x * 3).encode().decode("gbk", "ignore") for x in texts[:2]]
    read += ["‚±‚ñ‚É‚¿‚Í", "\x82\xb1\x82\xf1\x82\xc9"]  # Of Shift JIS.
    natural = [*texts, "« Él »… «\xa0été…\xa0»", "Það æði þýðir »é”…«"]
    natural += ["¡¡¡Ñ!!!", "东 西", "東京 大阪 京都", "½½½½½½½ °°°°", "ÄÖÜß"]
    natural += ["나 는 그 집 에", "涓涓细流"]
    spaced = [" ".join(texts[0]), "ab 彼 は 学 生 で す"]
    found = look([(x, "x") for x in read + natural + spaced])
    assert found.leftovers == {"mojibake": len(read), "spacing": 2}
    assert "2 with spacing, such as 我 是 学 生 (" in found.advice(0)[0]


def test_a_long_row_of_dots_is_inspected_in_time():
    # A search from each dot to the end of the line would take hours.
    assert look([("·" * 200_000, "°" * 200_000)]).leftovers == {}


def test_held_out_sources_in_the_training_text_are_counted():
    held = {"val": CLEAN[3:7], "test": [("new", "a"), *CLEAN[:2]], "b": CLEAN}
    corpus = open_corpus({"train": CLEAN[1:5], **held})
    inspection = Inspection(corpus, ["val", "test", "absent"])
    list(inspection.watch(corpus.pairs("train")))
    assert inspection.shared() == {"val": (2, 4), "test": (1, 3)}
    assert "1 of 3 sources of test are in" in inspection.advice(0)[1]


def test_a_mixture_that_repeats_pairs_on_purpose_has_no_repeated_ones(
    tmp_path,
):
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text("a\na\nb\n")
    # Of a, a, b and a the last one and the second are repeated.
    for weight, repeated in (0.5, 2), (2, 0):
        mixed = open_corpus([tmp_path, f"{tmp_path}:{weight}"])
        inspection = Inspection(mixed)
        list(inspection.watch(mixed.pairs("train")))
        assert inspection.repeated() == repeated


def test_characters_that_the_vocabulary_spells_in_bytes_are_named():
    # Digits in words, three names, and one side that is too long.
    pairs = [*zip(*digit_corpus()["test"], strict=True)]
    odd = [("日本 one", "Ł one"), ("日 two", "two" * 99), ("one 本本", "x")]
    pairs[3:3] = odd
    records = TokenisedCorpus.in_memory(pairs, digit_tokenizer(), 47)
    tokens = np.concatenate([records.source.ids, records.target.ids])
    found = digit_tokenizer().spelled(tokens)
    assert {x: found[x] for x in "日本Ł"} == {"日": 1, "本": 3, "Ł": 1}
    assert not set(found) & set("one zwei")
    rows = look(CLEAN).rows(records, digit_tokenizer(), 47)
    said = {row[0]: row[1:] for row in rows[1:]}
    assert rows[0] == "The text, 1,009 pairs"
    part = ", of the first 130"
    assert said["too long"] == ("1", f"pairs above 47 tokens, dropped{part}")
    count, shown = said["spelled in bytes"]
    assert count == f"{len(found)}" and ": 本 " in shown
