"""Text to text with a small random model: a real search, senseless words."""

import gc
import multiprocessing
import os
import signal
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypotheses import assert_alike
from sample_runs import SMALL_SIZES, WORDS

from keras_transformer import config
from keras_transformer.config import Sampling, Search, UserError
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.model import Transformer
from keras_transformer.translation.text_batches import IDS, texts_of
from keras_transformer.translation.translator import Hypothesis, Translator

BOS, EOS = config.BOS_ID, config.EOS_ID

SOURCES = [
    "ein kleiner Hund bellt",
    "the dog",
    "a small dog runs across the meadow and across the grüne Wiese",
    "",
    "laut",
    "die grüne Wiese und die kleine Wiese",
    " \t\n",
    "the dog",
]


@pytest.fixture(scope="module")
def tokenizer(small_translator):
    return small_translator.tokenizer


@pytest.fixture(scope="module")
def model(tokenizer):
    keras.utils.set_random_seed(1)
    model = Transformer(vocab_size=tokenizer.vocab_size, **SMALL_SIZES)
    # Far enough from fresh weights that the words depend on the source and
    # sentences end at many lengths.
    for weight in model.weights:
        if len(weight.shape) == 2:
            weight.assign(3 * weight)
    factor = np.full([tokenizer.vocab_size, 1], 0.5)
    factor[EOS] = 0.75
    model.embedding.table.assign(factor * model.embedding.table)
    return model


@pytest.fixture(scope="module")
def translator(model, tokenizer):
    return Translator(model, tokenizer)


def translated(translator):
    return translator.translate(SOURCES, n_best=2)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, "float32", "int8"])
def test_another_process_gets_the_same_translator(translator, precision):
    made = translator.freeze(precision) if precision else translator
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found, expected = pool.apply(translated, [made]), translated(made)
    assert_alike(found, expected)


def test_a_translator_from_before_a_fork_is_refused(translator):
    reader, writer = os.pipe()
    if os.fork() == 0:
        signal.alarm(20)  # It would wait for ever.
        try:
            translator.translate(SOURCES)
        except UserError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as said:
        assert "this process loaded" in said.read()
    os.wait()


def test_translations_come_back_in_order_whatever_the_batches(translator):
    together = translator.translate(SOURCES, batch_tokens=100_000)

    assert together == translator.translate(SOURCES, batch_tokens=130)
    assert together == translator.translate(SOURCES, batch_tokens=1)
    assert together[::-1] == translator.translate(SOURCES[::-1])
    assert len(set(together)) >= 5  # Two are blank, two are the same.


def test_n_best_are_hypotheses_best_first(translator):
    plain = translator.translate(SOURCES)
    found = translator.translate(SOURCES, n_best=3)

    assert [hypotheses[0].text for hypotheses in found] == plain
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert all(isinstance(item, Hypothesis) for item in hypotheses)
        assert len(hypotheses) == (3 if source.strip() else 1)
        scores = [item.score for item in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_a_text_that_pieces_spell_again_comes_once(translator, monkeypatch):
    texts = [["a", "b", "a", "c"], ["", "", "", ""]]
    tokenizer, none = translator.tokenizer, [-np.inf] * 3
    monkeypatch.setattr(tokenizer, "detokenize", lambda ids: tf.constant(texts))
    scores = tf.constant([[-1.0, -2.0, -3.0, -5.0], [0.0, *none]])
    result = BeamResult(None, scores, None)
    found, kept = texts_of(tokenizer, result, Search(n_best=4), [])
    assert found.numpy().tolist() == [[b"a", b"b", b"c", b""], [b""] * 4]
    assert kept.numpy().tolist() == [[-1.0, -2.0, -5.0, -np.inf], [0.0, *none]]
    drawn = Search(n_best=4, sampling=Sampling())
    found, _ = texts_of(tokenizer, result, drawn, [])
    assert found.numpy().astype(str).tolist() == texts


def test_blank_texts_and_signs_alone_need_no_model(tokenizer):
    calls = []

    def no_model(inputs):
        calls.append(inputs)
        return tf.one_hot(inputs[1], tokenizer.vocab_size, 9.0)

    translator = Translator(no_model, tokenizer)
    calls.clear()  # To see its logits.
    blank = ["", " ", "\n", "\u3000\t", "\u200b"]

    assert translator.translate(blank) == [""] * 5
    assert translator.translate(blank, n_best=2) == [[Hypothesis("", 0.0)]] * 5
    assert translator.translate([]) == []
    signs = ["---", " * * *\n", "│ │", "?", "。", "_ 😀"]
    texts = [text.strip() for text in signs]
    assert translator.translate(signs, prefixes=["dog"] * 6) == texts
    # White space before a sentence stays.
    found = translator.translate(signs, split_sentences=True)
    assert found == [text.rstrip() for text in signs]
    found = translator.translate(signs, n_best=2, max_source_length=2)
    assert found == [[Hypothesis(text, 0.0)] for text in texts]
    assert not calls
    for count, split in enumerate([False, None, True]):
        text = "---" if split is False else "⠓⠑⠇⠇⠕"
        translator.translate(
            [text], split_sentences=split, max_length=count + 1
        )
        assert len(calls) > count


def test_half_a_character_is_translated_as_a_question_mark(translator):
    # As from a file read with errors="surrogateescape".
    odd, plain = translator.translate(["dog \udcff", "dog ?"])
    assert odd == plain


def test_a_long_source_is_cut_and_told(translator, tokenizer, caplog):
    texts = [" ".join(WORDS[:count]) for count in (2, 5, 11)]
    ids = tokenizer.tokenize(texts)
    longest = len(ids[1])  # Just fits.
    options = Search(max_length=7, max_source_length=longest)

    found, truncated = translator.search_texts(texts, options)

    assert truncated.tolist() == [False, False, True]
    cut = tf.concat([ids[2][: longest - 1], [EOS]], axis=0)
    expected = translator.id_model.search_ids(cut[None], options)
    score = found[2][0].score
    np.testing.assert_allclose(score, expected.scores[0, 0], rtol=1e-4)
    translator.translate(texts, max_length=7, max_source_length=longest)
    assert f"Cut 1 of 3 texts after {longest} tokens: number 3." in caplog.text


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_score_is_a_normalised_log_probability(
    translator, tokenizer, model, alpha
):
    sources = ["the dog runs", "laut", "die grüne Wiese"]
    targets = ["der kleine Hund", "the dog runs across", ""]

    # In one batch, so that padding would show.
    found = translator.score(sources, targets, length_penalty=alpha)

    for source, target, score in zip(sources, targets, found, strict=True):
        source = tokenizer.tokenize([source]).to_tensor()
        target = tokenizer.tokenize([target]).to_tensor().numpy()
        target_in = np.pad(target[:, :-1], [[0, 0], [1, 0]])
        target_in[0, 0] = BOS
        log_probs = tf.nn.log_softmax(model((source, target_in))).numpy()
        length = target.shape[1]
        total = log_probs[0, np.arange(length), target[0]].sum()
        expected = total / ((5 + length) / 6) ** alpha
        np.testing.assert_allclose(score, expected, rtol=1e-4)


def test_a_side_that_is_no_list_of_texts_is_not_scored(translator):
    one = "runs/text.en"
    for call in translator.score, translator.align:
        with pytest.raises(UserError, match="`sources`"):
            call(one, ["laut"])
        with pytest.raises(UserError, match="`targets`"):
            call(["laut"], one)
        with pytest.raises(ValueError, match="2 sources, 1 targets"):
            call(["a", "b"], ["c"])


def test_a_zero_byte_is_refused_in_what_people_write_alone(translator):
    for call in (
        lambda: translator.translate(["a", "d\0"]),
        lambda: translator.translate(["a", "b"], prefixes=["a", "d\0"]),
        lambda: translator.score(["a", "d\0"], ["a", "b"]),
    ):
        with pytest.raises(UserError, match="zero byte, in place 1 of `"):
            call()
    # A model that draws may say one.
    assert translator.score(["dog"], ["Hund\0"])[0] < 0
    assert len(translator.align(["dog"], ["Hund\0"])) == 1


def test_a_blank_pair_scores_nothing(translator):
    assert translator.score([""], [" "]) == [0.0]
    assert translator.score([], []) == []
    # A translation of nothing is no blank pair.
    assert translator.score([""], ["a"])[0] < 0


def scripted_translator(model, tokenizer, monkeypatch, scores):
    """A search that finds words with given scores."""
    translator = Translator(model, tokenizer)
    word = tokenizer.tokenize(["laut"])[0]

    def search_ids(source, search):
        batch = tf.shape(source)[0]
        ids = tf.tile(word[None, None, :], [batch, len(scores), 1])
        scored = tf.tile([scores], [batch, 1])
        return BeamResult(ids, scored, tf.zeros([batch, len(scores)]))

    monkeypatch.setattr(translator.id_model, "search_ids", search_ids)
    return translator


def test_one_graph_serves_batches_of_every_shape(model, tokenizer, monkeypatch):
    translator = scripted_translator(model, tokenizer, monkeypatch, [-1.0])
    traced = []
    search_ids = translator.id_model.search_ids
    monkeypatch.setattr(
        translator.id_model,
        "search_ids",
        lambda **inputs: traced.append(1) or search_ids(**inputs),
    )

    for texts in (SOURCES, SOURCES[:1], SOURCES[2:5]):
        translator.translate(texts, max_length=5)
    assert len(traced) == 1
    translator.translate(SOURCES, max_length=6)
    assert len(traced) == 2


def test_the_graphs_last_used_alone_are_kept(model, tokenizer, monkeypatch):
    translator = scripted_translator(model, tokenizer, monkeypatch, [-1.0])
    graphs = {
        key: weakref.ref(translator.graph(key, lambda ids: ids + 1, IDS))
        for key in (*range(8), 0, 8)  # Of these, 1 was used first.
    }
    gc.collect()
    assert [key for key, graph in graphs.items() if graph() is None] == [1]


def test_a_text_that_the_search_leaves_without_a_translation_is_named(
    model, tokenizer, monkeypatch, caplog
):
    translator = scripted_translator(model, tokenizer, monkeypatch, [-np.inf])
    # A blank text has its own translation, which is empty.
    assert translator.translate(["dog", ""]) == ["", ""]
    (said,) = caplog.messages
    assert "no translation of 1 of 2 texts, such as 'dog'" in said


def test_a_new_seed_between_two_translations_does_no_harm(translator):
    before = translator.translate(SOURCES), translator.score(["a"], ["b"])

    # Makes TensorFlow unload the vocabulary.
    keras.utils.set_random_seed(1)

    after = translator.translate(SOURCES), translator.score(["a"], ["b"])
    assert after == before


def test_a_packed_translator_follows_training_of_its_model(model, tokenizer):
    for dtype in ("float32", "bfloat16"):
        trained = model.from_config({**model.get_config(), "dtype": dtype})
        plain = Translator(trained, tokenizer)
        packed = plain.freeze(dtype)
        before = packed.translate(["the dog"], n_best=1)
        packed.model.set_weights(model.get_weights())
        found = packed.translate(["the dog"], n_best=1)
        assert before != found == plain.translate(["the dog"], n_best=1)


def test_a_model_of_another_vocabulary_is_refused(tokenizer):
    with pytest.raises(ValueError, match="29 and 331"):
        Translator(lambda inputs: tf.zeros([2, 2, 29]), tokenizer)


def test_an_explanation_reads_as_much_as_a_translation(small_translator):
    search = Search(beam_size=1, max_source_length=3, max_length=2)
    model, tokenizer = small_translator.model, small_translator.tokenizer
    translator = Translator(model, tokenizer, search=search)
    text = "seven eight nine one two three"
    explanation = translator.explain(text)
    assert explanation.translations == translator.translate([text])
    assert explanation.truncated
