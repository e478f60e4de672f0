"""Models and tokenizers of one's own: searched, scored and exported.

What a search finds is compared with a search by definition over the model's own
calls, a score with a sum in NumPy.
"""

import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_searches import graph_of_model
from own_models import TutorialTransformer, WordPieces
from simple_search import (
    as_hypotheses,
    assert_same,
    greedy_search,
    log_softmax,
    plain_beam_search,
)
from small_models import make_model as plain_model
from small_models import randomise

import keras_transformer as kt
from keras_transformer.config import Search, SpecialIds
from keras_transformer.decoding import own_models as models_of_others
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.translation.model_card import ModelCard

VOCAB = 11
SOURCE = np.array([[5, 7, 9, 3], [6, 3, 0, 0], [10, 4, 3, 0]], "int32")
TEXTS = ["one lamp", "two red lamps", "", "red"]


class Whole:
    """Predicts after a prefix by a call of the model, and nothing else."""

    def __init__(self, model, begin=2):
        self.begin, self.call = begin, graph_of_model(model)

    def log_probs(self, sentence, prefix):
        source = tf.constant([sentence], tf.int32)
        target_in = tf.constant([[self.begin, *prefix]], tf.int32)
        return log_softmax(self.call(source, target_in)[0, -1].numpy())


class Features(kt.Transformer):
    def features(self, inputs, training=False):
        return -1.5 * super().features(inputs, training)


class Call(kt.Transformer):
    def call(self, inputs, training=False):
        return super().call(inputs, training)[..., ::-1]


class Both(Features):
    """Changes the cached step to match the features."""

    def decode_step(self, *args, scorer=None, **kwargs):
        def scaled(x):
            return (scorer or self.embedding.logits)(-1.5 * x)

        return super().decode_step(*args, **kwargs, scorer=scaled)


class Sceptical(kt.layers.Decoder):
    def call(
        self,
        inputs,
        memory,
        self_mask=None,
        memory_mask=None,
        training=False,
        inputs_mask=None,
        use_causal_mask=False,
    ):
        masks = (self_mask, memory_mask, training, inputs_mask, use_causal_mask)
        return super().call(-inputs, memory, *masks)


class OwnLayer(kt.Transformer):
    def build(self, input_shape=None):
        config = self.decoder.get_config()
        del self.decoder
        self.decoder = Sceptical.from_config(config)
        super().build(input_shape)


class Added(kt.Transformer):
    """Adds layers before and after, and builds neither."""

    def __init__(self, *args, share=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.share = share
        self.adapter = keras.Sequential([keras.layers.Dense(6)])

    def build(self, input_shape=None):
        self.gate = keras.layers.Dense(6)
        super().build(input_shape)

    def features(self, inputs, training=False):
        x = super().features(inputs, training)
        return x + self.share * self.adapter(x) * self.gate(x)

    def get_config(self):
        return {**super().get_config(), "share": self.share}


def own(kind):
    plain = plain_model(vocab_size=VOCAB, num_layers=1)
    config = {**plain.get_config(), "d_model": 6}
    return randomise(kind.from_config(config), 3)


@pytest.fixture(autouse=True)
def _said_anew():
    models_of_others._warn_once.cache_clear()


def test_layers_that_a_subclass_adds_are_built_and_saved(tmp_path):
    model = own(Added)
    assert len(model.weights) == len(own(kt.Transformer).weights) + 4
    model.share = 0.25
    model.save(tmp_path / "model.keras")
    known = {"Added": Added}
    loaded = keras.models.load_model(tmp_path / "model.keras", known)
    inputs = SOURCE, SOURCE
    np.testing.assert_array_equal(model(inputs), loaded(inputs))
    assert str(inspect.signature(Added)) == "(*args, share=0.5, **kwargs)"


@pytest.mark.parametrize(
    "kind, is_slower",
    [
        (Features, True),
        (Both, False),
        (OwnLayer, True),
        (Added, True),
        pytest.param(Call, True, marks=pytest.mark.slow),
    ],
    ids=lambda kind: getattr(kind, "__name__", ""),
)
def test_a_search_follows_what_a_subclass_overrides(kind, is_slower, caplog):
    model, whole = own(kind), Whole(own(kind))
    search = Search(beam_size=3, n_best=3, max_length=5)
    found = IdModel(model).search_ids(tf.constant(SOURCE), search)
    plain = IdModel(own(kt.Transformer)).search_ids(tf.constant(SOURCE), search)
    assert not np.array_equal(found.scores, plain.scores)
    for row, sentence in enumerate(SOURCE):
        sentence = sentence[sentence != 0]
        expected = plain_beam_search(whole, sentence, 5, 3, 0.6, 3)
        assert_same(as_hypotheses(found, row), expected, 1e-4)
    assert caplog.text.count("runs the whole target again") == is_slower


def test_a_subclass_stays_one_in_bfloat16():
    frozen = kt.Translator(own(Features), Letters()).freeze("bfloat16")
    assert type(frozen.model) is Features
    assert frozen.model.compute_dtype == "bfloat16"


def test_a_score_is_the_sum_of_a_call_s_log_probabilities():
    target = np.array([[7, 8, 9, 3], [4, 3, 0, 0], [10, 10, 3, 0]], "int32")
    for kind in (Features, Call):
        model, whole = own(kind), Whole(own(kind))
        scores, _ = IdModel(model).score_ids(
            tf.constant(SOURCE), tf.constant(target), 0.0
        )
        for row, ids in enumerate(target):
            ids = ids[ids != 0]
            source = SOURCE[row][SOURCE[row] != 0]
            expected = sum(
                whole.log_probs(source, ids[:t])[ids[t]]
                for t in range(len(ids))
            )
            np.testing.assert_allclose(scores[row], expected, rtol=1e-4)


@functools.cache
def tutorial():
    """A model as tensorflow.org's tutorial writes it, with two vocabularies."""
    source, target = WordPieces("one two red"), WordPieces("eins zwei rot")
    keras.utils.set_random_seed(7)
    model = TutorialTransformer(source.size, target.size)
    model((tf.ones([1, 2], tf.int32), tf.ones([1, 2], tf.int32)))
    for weight in model.weights:
        weight.assign(2.0 * weight)
    return model, source, target


def test_the_tutorial_s_model_is_searched_and_scored_in_three_lines(caplog):
    model, source, target = tutorial()
    translator = kt.Translator(model, kt.TokenizerAdapter(source, target))
    found = translator.translate(TEXTS, beam_size=3, n_best=2, max_length=6)

    assert caplog.text.count("no cached step") == 1
    whole = Whole(model)
    for text, hypotheses in zip(TEXTS, found, strict=True):
        if not text:
            assert hypotheses == [kt.Hypothesis("", 0.0)]
            continue
        sentence = source.tokenize([text]).to_list()[0]
        assert sentence[0] == 2 and sentence[-1] == 3
        (ids, score), *_ = plain_beam_search(whole, sentence, 6, 3, 0.6, 2)
        words = [each for each in ids if each != 3]
        (expected,) = target.detokenize(tf.constant([words], tf.int64)).numpy()
        assert hypotheses[0].text == expected.decode()
        np.testing.assert_allclose(hypotheses[0].score, score, rtol=1e-4)
    with pytest.raises(kt.UserError, match="received TutorialTransformer"):
        translator.align(["one"], ["eins"])


@pytest.mark.stands_for("exports of models of one's own")
@pytest.mark.parametrize(
    "kind", ["tutorial", pytest.param("subclass", marks=pytest.mark.slow)]
)
def test_an_export_answers_as_its_translator(kind, tmp_path):
    model, source, target = tutorial()
    tokenizer = kt.TokenizerAdapter(source, target)
    if kind == "subclass":
        sizes = dict(num_layers=1, d_model=6, num_heads=2, ffn_dim=8)
        model = Features(target.size, **sizes)
    search = Search(beam_size=2, max_length=5)
    translator = kt.Translator(model, tokenizer, search, "pt", "cs")
    path = kt.export(translator, tmp_path / "own")
    assert ModelCard.load(path).splitter.languages == ("pt", "cs")
    served = tf.saved_model.load(path).signatures
    assert "attention" not in served
    found = served["serving_default"](tf.constant(TEXTS))
    texts = [text.decode() for text in found["translation"].numpy()]
    assert texts == translator.translate(TEXTS)
    scores = served["score"](
        source=tf.constant(["red"]), target=tf.constant(["zwei rot"])
    )
    expected = translator.score(["red"], ["zwei rot"])
    np.testing.assert_allclose(scores["score"], expected, rtol=1e-5)


def recurrent(vocab_size):
    """A functional model whose decoder is no Transformer."""
    source, target_in = (keras.Input([None], dtype="int32") for _ in range(2))
    x = keras.layers.Embedding(vocab_size, 5)(source)
    x = keras.layers.GlobalMaxPooling1D()(x)
    y = keras.layers.Embedding(vocab_size, 5)(target_in)
    y = keras.layers.GRU(5, return_sequences=True)(y, initial_state=x)
    model = keras.Model([source, target_in], keras.layers.Dense(vocab_size)(y))
    return randomise(model, 5)


def test_a_functional_model_writes_with_the_ids_of_a_text_vectorization():
    layer = keras.layers.TextVectorization(13, output_sequence_length=7)
    layer.adapt(["begin eins zwei end", "one two"])
    words = layer.get_vocabulary()
    begin, end = words.index("begin"), words.index("end")
    model = recurrent(13)  # More than there are words.
    tokenizer = kt.TokenizerAdapter(layer, bos_id=begin, eos_id=end)
    assert tokenizer.ids == SpecialIds(0, None, begin, end, ())
    assert tokenizer.target.tokenize(["begin eins end"]).to_list() == [
        [words.index("eins"), end]
    ]
    translator = kt.Translator(model, tokenizer)
    (found,) = translator.translate(["one two"], beam_size=1, max_length=5)
    sentence = [words.index("one"), words.index("two")]
    whole, ids = Whole(model, begin), [begin]
    while len(ids) <= 5 and ids[-1] != end:
        logits = whole.log_probs(sentence, ids[1:])
        logits[[0, begin]] = -np.inf
        ids.append(int(logits.argmax()))
    written = [words[i] for i in ids[1:] if i != end and i < len(words)]
    assert found == " ".join(written)


class Letters:
    """Encodes in Python, as many tokenizers do."""

    bos_token_id, eos_token_id = 2, 3

    def tokenize(self, text):
        return list(text)  # Pieces, not ids, as with Hugging Face.

    def encode(self, text):
        return [ord(letter) - 93 for letter in text]

    def decode(self, ids):
        return "".join(chr(i + 93) for i in ids)

    detokenize = "".join


def test_a_functional_model_and_a_tokenizer_in_python_translate(tmp_path):
    model = recurrent(11)
    translator = kt.Translator(model, Letters())
    (found,) = translator.translate(["bdf"], beam_size=1, max_length=5)
    ids, _ = greedy_search(Whole(model), [5, 7, 9], 5, 0.6)
    assert found == Letters().decode([each for each in ids if each != 3])
    # A graph cannot hold Python.
    with pytest.raises(kt.UserError, match="`kt.batch` outside of `Dataset"):
        kt.export(translator, tmp_path / "own")


def test_what_is_no_such_model_or_tokenizer_is_refused_in_a_sentence(caplog):
    plain = own(kt.Transformer)
    for model, named in (
        (3, "a model"),
        (keras.Sequential([keras.layers.Dense(3)]), "Sequential"),
        (lambda pair: tf.zeros([2, 5]), "float32 \\[2, 5\\]"),
        (lambda pair: tf.fill([2, 2, 4], 0.25), "probabilities"),
    ):
        with pytest.raises(kt.UserError, match=named):
            kt.Translator(model, Letters())
    with pytest.raises(kt.UserError, match="received int"):
        kt.Translator(plain, 3)
    pads = kt.TokenizerAdapter(Letters(), pad_id=7)
    # Before a training with it, too.
    assert "`pad_id` is 7" in caplog.text
    with pytest.raises(kt.UserError, match="`pad_id` to be 0"):
        kt.Translator(plain, pads)
    beyond = kt.TokenizerAdapter(Letters(), eos_id=VOCAB)
    with pytest.raises(kt.UserError, match=f"below {VOCAB}"):
        kt.Translator(plain, beyond)
    ends = kt.TokenizerAdapter(Letters(), eos_id=5)
    assert kt.Translator(plain, ends)
    with pytest.raises(kt.UserError, match="`eos_id` to be 3"):
        kt.Translator(plain_model(source_end=False), ends)
    functions = kt.Translator(lambda pair: plain(pair), Letters())
    with pytest.raises(kt.UserError, match="float32"):
        functions.freeze("bfloat16")


def copying(inputs):
    """Writes its source, then id 2 for ever."""
    source, target_in = inputs
    length = tf.shape(target_in)[1]
    source = tf.pad(source, [[0, 0], [0, length]])
    return tf.one_hot(tf.where(source == 0, 2, source)[:, :length], 40, 9.0)


@pytest.mark.parametrize("bos", [1, 2])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_target_may_begin_with_the_token_that_ends_it(bos, beam_size):
    words = kt.TokenizerAdapter(Letters(), bos_id=bos, eos_id=2)
    how = dict(beam_size=beam_size, max_length=8)
    assert kt.Translator(copying, words).translate(["abc"], **how) == ["abc"]


def mean_of_source(inputs):
    source, target_in = inputs
    mean = tf.reduce_mean(tf.cast(source, tf.float32), axis=1)
    ids = tf.cast(target_in, tf.float32)[:, :, None]
    return (mean[:, None, None] + ids) * tf.range(40.0)


def test_a_model_that_sees_padding_is_told_once(caplog):
    words = kt.TokenizerAdapter(Letters(), bos_id=1, eos_id=2)
    kt.Translator(copying, words)
    assert not caplog.messages
    for _ in range(2):
        kt.Translator(mean_of_source, words)
    (message,) = caplog.messages
    assert "mean_of_source" in message
