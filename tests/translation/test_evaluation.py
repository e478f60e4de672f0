"""Scores against sacreBLEU called directly, and against counts by hand."""

import unicodedata

import pytest
import sacrebleu

from keras_transformer.config import UserError
from keras_transformer.translation import evaluation

REFERENCES = [
    "Ein Hund läuft über die grüne Wiese.",
    "Zwei Kinder spielen Fußball.",
    "Ein T-Shirt-Händler verkauft T-Shirts.",
]
# The paper's own separator of compounds, from GNMT's scripts.
AT = "##AT##-##AT##"


def test_compound_split_bleu_counts_the_parts_of_compounds():
    # Das Rich @ Text @ Format ist gut .   9 tokens
    # Das Text @ Format ist gut .          7 tokens
    # 7 of 9 tokens, 5 of 8 pairs, 4 of 7 triples, 3 of 6 fours.
    score = evaluation.compound_split_bleu(
        ["Das Rich-Text-Format ist gut."], ["Das Text-Format ist gut."]
    )

    product = (7 / 9) * (5 / 8) * (4 / 7) * (3 / 6)
    assert score.value == pytest.approx(100 * product ** (1 / 4))
    assert score.signature.startswith(
        "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
        f"{sacrebleu.__version__}|prepared:moses-de.atat."
    )


def test_lower_cased_scores_come_when_asked_for_and_say_so():
    lowered = [text.lower() for text in REFERENCES]
    texts = lowered, [REFERENCES], "de"
    assert evaluation.score(*texts).lowercase_tokenised_bleu is None
    found = evaluation.score(*texts, lowercase=True)
    assert found.lowercase_tokenised_bleu.value == pytest.approx(100)
    assert found.bleu.value < 100
    assert "|prepared:lc." in found.lowercase_tokenised_bleu.signature


def test_lower_cased_tokens_are_those_of_moses_after_normalising():
    # „Ja“, sagt sie.  is  " ja " , sagt sie .  and the reference  " nein " …
    # 6 of 7 tokens, 4 of 6 pairs, 3 of 5 triples, 2 of 4 fours.
    score = evaluation.lowercase_tokenised_bleu(
        "de", ["„Ja“, sagt sie."], ['"NEIN", sagt Sie.']
    )

    product = (6 / 7) * (4 / 6) * (3 / 5) * (2 / 4)
    assert score.value == pytest.approx(100 * product ** (1 / 4))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Das Rich-Text-Format.", f"Das Rich {AT} Text {AT} Format ."),
        # Perl goes on after the letter that it has read.
        ("a-b-c", f"a {AT} b-c"),
        ("E-Mail-Adresse", f"E {AT} Mail {AT} Adresse"),
        # A dash between spaces, and one that opens a word, is no compound.
        ("Hut - und Stock", "Hut - und Stock"),
        ('Über-Ich & "Öl"', f"Über {AT} Ich &amp; &quot; Öl &quot;"),
        # The tokenizer knows German abbreviations and ordinal numbers.
        ("Am 3. Mai, z.B. um 3,5 Uhr.", "Am 3. Mai , z.B. um 3,5 Uhr ."),
        ("", ""),
    ],
)
def test_compounds_come_apart_at_their_hyphens(sentence, expected):
    assert evaluation.split_compounds([sentence]) == [expected]


@pytest.mark.parametrize(
    "bleu, references, tokenize, said",
    [
        (31.7, ["ein", "eins zwei drei vier"], "13a", None),
        (31.7, ["eins zwei drei.", "vier"], "13a", None),
        (31.7, ["eins zwei drei", "vier"], "13a", "no reference has four"),
        (31.7, ["買了一本書"], "13a", "no reference has four"),
        (31.7, ["買了一本書"], "zh", None),
        (0.0, ["eins zwei drei vier"], "13a", "0.00"),
        (31.7, ["eins zwei drei vier .", "eins ."], "13a", "tokenised"),
        (31.7, ["eins zwei drei vier .", "vier."], "13a", None),
    ],
)
def test_a_bleu_that_tells_nothing_says_so(bleu, references, tokenize, said):
    found = evaluation.caution(bleu, references, tokenize)
    assert said in found if said else found is None


# A quarter of these words are other ones.
SPEECH = {
    "ja": (["私は京都で本を買った。"], ["私は東京で本を買った。"], "ja-mecab"),
    "zh-Hant": (["我昨天買了一本書。"], ["我今天買了一本書。"], "zh"),
    "fa": (["من دیروز دو کتاب خریدم."], ["من امروز دو کتاب خریدم."], "13a"),
}


@pytest.mark.parametrize("language", SPEECH)
def test_bleu_counts_the_words_or_characters_of_the_language(language):
    texts, references, tokenizer = SPEECH[language]
    result = evaluation.score(texts, [references], language)
    expected = sacrebleu.corpus_bleu(texts, [references], tokenize=tokenizer)
    assert result.bleu.value == expected.score
    assert f"|tok:{tokenizer}" in result.bleu.signature
    assert result.compound_split_bleu is None
    perfect = evaluation.score(references, [references], language)
    assert perfect.bleu.value == pytest.approx(100)


def test_a_tokenizer_may_be_chosen():
    texts, references, _ = SPEECH["ja"]
    result = evaluation.score(
        *(texts, [references], "ja"), lowercase=True, tokenize="char"
    )
    assert "|tok:char|" in result.bleu.signature
    assert result.lowercase_tokenised_bleu is None
    with pytest.raises(UserError, match="'words'"):
        evaluation.bleu_tokenizer("ja", "words")


def test_without_packages_of_japanese_characters_count(monkeypatch, caplog):
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    assert evaluation.bleu_tokenizer("ja_JP") == "char"
    (record,) = caplog.records
    assert "ja-mecab" in record.message
    with pytest.raises(UserError, match="ja-mecab"):
        evaluation.bleu_tokenizer("de", "ja-mecab")


@pytest.mark.parametrize(
    "code, reference",
    [
        ("vi", "Ta co\u0301 me\u0300o tra\u0306\u0301ng va\u0300 ga\u0300."),
        # NFC takes these apart.
        ("hi", "ल\u095cके ने ब\u095cा पे\u095c देखा।"),
        ("he", "\ufb2aלום לכל הילדים ה\ufb31אים."),
    ],
)
def test_a_reference_may_spell_its_letters_in_another_form(code, reference):
    system = unicodedata.normalize("NFC", reference)
    assert system != reference
    found = evaluation.score([system], [[reference]], code, lowercase=True)
    assert [score.value for score in found.scores.values()] == pytest.approx(
        [100] * len(found.scores)
    )
