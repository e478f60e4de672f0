"""Sources are read generously and targets exactly, alike in all three ways."""

import logging
import pickle
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from natural_corpus import same_ids, train_pieces

import keras_transformer as kt
from keras_transformer.data import learning, paired_tokenizer, source_reading
from keras_transformer.data.tokenizer import Tokenizer

TEXT = [*kt.open_corpus("demo").sentences("train")]
# As the strangers pasted it, and as it was meant.
PASTED = [
    ("May\u00a016, 2024", "May 16, 2024"),
    ("three\u00a0hundred and\u202ftwo\u3000", "three hundred and two"),
    ("three hun\u00addred and two", "three hundred and two"),
    ("\u200ethree hundred\u2060 and\ufe0f two", "three hundred and two"),
    ("\u2022\u00a0three \uf0b7two", "- three -two"),
    ("\ufffcthree\u2800hundred and two\ufffc", "three hundred and two"),
    ("three\u200b hundred \u2066and\u2069 two", "three hundred and two"),
    ("ｔｈｒｅｅ ﬁve，\u2007６７⁸", "three five, 678"),
    ("May 16, 2024¹ 10²", "May 16, 2024 1 10 2"),
    ("six\u2011two\u2013one – two", "six-two-one, two"),
    ("three—six — two ―five—", "three, six, two - five,"),
    ("— two\u202f– six –\u00a0two, 5\u202f–\u00a06", "- two, six, two, 5 - 6"),
    ("\u00a0\u00ad\u200b", ""),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("reading") / "tokenizer.model"
    return Tokenizer.train([*TEXT, "six-two-one"], 700, path)


def test_what_has_no_piece_is_read_as_what_it_stands_for(tokenizer):
    pasted, meant = zip(*PASTED, strict=True)
    assert same_ids(tokenizer, pasted) == same_ids(tokenizer, meant)
    # A target is what it is.
    exact = same_ids(tokenizer.target, pasted)
    texts = tokenizer.detokenize(tf.ragged.constant(exact[:-1])).numpy()
    assert [text.decode() for text in texts] == list(pasted[:-1])


def test_a_saved_model_reads_as_python_does(tokenizer, tmp_path):
    pasted, _ = zip(*PASTED, strict=True)
    module = tf.Module()
    module.tokenizer = tokenizer
    signature = [tf.TensorSpec([None], tf.string)]
    module.source = tf.function(tokenizer.tokenize, signature)
    module.target = tf.function(tokenizer.target.tokenize, signature)
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    for name, side in ("source", tokenizer), ("target", tokenizer.target):
        found = getattr(loaded, name)(tf.constant(pasted)).to_list()
        assert found == side.tokenize(pasted).to_list()


def test_a_character_with_a_piece_stays(tmp_path):
    # Quotes of one kind stand for another only where that alone is known.
    text = ["a\u00a0b ½ ’tis ﬁ", "’tis a \u00a0 b ﬁ ½ ’"] * 3
    tokenizer = Tokenizer.train(text, 300, tmp_path / "t.model")
    for side in tokenizer, tokenizer.target:
        found = tokenizer.detokenize(side.tokenize(text)).numpy()
        assert found[0].decode() == text[0]
    typed = same_ids(tokenizer, ["'tis", "`tis", "‘tis"])
    assert typed == same_ids(tokenizer, ["’tis"] * 3)


def test_what_only_targets_have_is_read_as_it_stands_for(tmp_path):
    pairs = [('He says "yes" - 3!', "Er sagt „ja“\u00a0– ３ ！ É é ・")] * 3
    sides = [side for pair in pairs for side in pair]
    path = tmp_path / "t.model"
    whole = Tokenizer.train(sides, 330, path)
    Tokenizer.train(sides, 330, path, in_pairs=True)
    tokenizer = Tokenizer.load(path)
    for copy in tokenizer, pickle.loads(pickle.dumps(tokenizer)):
        pasted, meant = "“yes”\u00a0– ３！", '"yes" - 3!'
        assert same_ids(copy, [pasted]) == same_ids(copy, [meant])
        assert same_ids(copy, ["É é"]) == same_ids(whole, ["É é"])
        # Targets, and vocabularies that do not know their sides, stay.
        texts = [pasted, pairs[0][1]]
        exact = same_ids(whole.target, texts)
        assert same_ids(copy.target, texts) == exact
        assert same_ids(whole, texts[1:]) == exact[1:]


def test_a_seldom_character_of_sources_is_one_of_the_targets(tmp_path):
    # Of 1 in 100,000 characters on, it is the sources' own.
    for times, is_own in (1, False), (2, True):
        sides = ['"a"\n' * 50_000, "„b“\n" * 50_000] + ["„“", "b"] * times
        tokenizer = Tokenizer.train(sides, 300, tmp_path / "t", in_pairs=True)
        target = same_ids(tokenizer.target, ["“"])
        assert (same_ids(tokenizer, ["“"]) == target) == is_own


@pytest.mark.parametrize(
    "text, pasted, meant",
    [
        ("ستة آلاف، 30", "سِتَّةُ آلـــاف، ٣٠", "ستة آلاف، 30"),
        ("یک کتاب 5", "يك كتاب ۵", "یک کتاب 5"),
        ("ששת אלפים-", "שֵׁשֶׁת־אֲלָפִים", "ששת-אלפים"),
        ("шесть все", "ше\u0301сть всё", "шесть все"),
        ("two dogs ö film", "Two DOGS O\u0308 ﬁlm", "two dogs ö film"),
        ("२ 30 रवार", "३० रवार", "30 रवार"),
        ("คำ 30", "ค\u0e4dา ๓๐", "คำ 30"),
        ("长 日本 ５ ５", "⻓ ⽇本 5", "长 日本 ５"),
        ("да — нет, - 5", "да – нет 5 – 5", "да — нет 5 - 5"),
        ("«да» (5)!", '"да" („5“)! “5!”', "«да» («5»)! «5!»"),
        ("“I’m 5.” (5)", '"I\'m 5." ("5")', "“I’m 5.” (“5”)"),
        ("„Ja.“ (5)", '"Ja." (”5”)', "„Ja.“ („5“)"),
        ("元気？は！（い）：；，", "元気?は!(い):;,", "元気？は！（い）：；，"),
        ("そう～だ… -", "そう〜だ・・・ そ・う･だ", "そう～だ… そうだ"),
        ("1、2歳 ３", "1・2･1歳 １・２・３歳", "1、2、1歳 1、2、３歳"),
        ("がぱ パ 7:08", "か゛は゜ ハ゜ 7∶08\ufe0f\u20e3", "がぱ パ 7:08"),
        ("1 1/2 ガ カ パ", "1½ ｶﾞｶﾊﾟ", "1 1/2 ガカパ"),
        # Singletons, as Unicode takes them.
        ("神社 社神 Å", "\ufa19社 \u212b", "\u795e社 \xc5"),
    ],
)
def test_pasted_text_reads_as_it_is_typed(text, pasted, meant, tmp_path):
    # A symbol is one piece, so its characters have none.
    path, symbol = tmp_path / "t.model", "<kept5>"
    tokenizer = Tokenizer.train([text] * 3, 300, path, symbols=[symbol])
    pasted, meant = pasted + symbol, meant + symbol
    assert same_ids(tokenizer, [pasted]) == same_ids(tokenizer, [meant])
    assert not tokenizer.spelled(tokenizer.tokenize([pasted]).values.numpy())


def test_no_rule_of_the_vocabulary_is_lost(tokenizer):
    spared = {*map(chr, range(0xD800, 0xE000)), "\0"}
    texts = {*map(chr, range(sys.maxunicode + 1)), *learning._rules()}
    texts = sorted(texts - spared)
    before = tokenizer.target._pieces.normalize(texts)
    after = tokenizer._pieces.normalize(texts)
    read = zip(texts, before, after, strict=True)
    changed = {text: new for text, old, new in read if old != new}
    assert len(changed) > 4_000
    # A letter of two characters is read as the same one in one.
    composed = (
        unicodedata.normalize("NFC", x) if x[1:] else x for x in changed
    )
    assert {*composed} <= source_reading._meanings().keys()
    letters = {
        text: unicodedata.normalize("NFKC", text)
        for text in changed
        if unicodedata.normalize("NFKC", text) != text
        and "FILLER" not in unicodedata.name(text[0], "")
    }
    letters = {x: plain for x, plain in letters.items() if plain.isalnum()}
    assert len(letters) > 500
    assert {x: changed[x].lower() for x in letters} == {
        x: f"▁{plain.lower()}" for x, plain in letters.items()
    }


def test_a_vocabulary_without_rules_reads_generously_too(tokenizer):
    options = dict(normalization_rule_name="identity", byte_fallback=True)
    model = train_pieces(TEXT[:1009], 600, **options)
    pasted, meant = zip(*PASTED[:5], strict=True)
    own = Tokenizer(model)
    assert same_ids(own, pasted) == same_ids(own, meant)
    # As of an imported run: pieces decide that the list of both sides has.
    names = ["<pad>", "<unk>", "<s>", "</s>", *own.pieces(range(260, 600))]
    pair = paired_tokenizer.PairedTokenizer(
        paired_tokenizer.pack(model, model, names)
    )
    assert same_ids(pair, pasted) == same_ids(pair, meant)
    assert same_ids(pair.target, pasted[:1]) != same_ids(pair, meant[:1])


def test_characters_never_met_are_counted(tokenizer, caplog):
    caplog.set_level(logging.INFO, "keras_transformer")
    (ids,) = tokenizer.tokenize(["two\u00a0dogs"]).to_list()
    tokenizer.log_unmet(np.array(ids))
    assert not caplog.messages
    (ids,) = tokenizer.tokenize(["two 😀 dogs 語"]).to_list()
    for _ in range(2):  # Said once, as in a training.
        tokenizer.log_unmet(np.array(ids))
    assert caplog.text.count("(2 times") == 1
    assert "😀 語" in caplog.text
