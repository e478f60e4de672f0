"""Text to text with a small random model: a real search, senseless words."""

import dataclasses
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from sample_runs import SMALL_SIZES, make_run

from keras_transformer import config
from keras_transformer.config import Sampling, UserError
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.beam_search import BeamResult
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.translation.translator import (
    Hypothesis,
    Search,
    Translator,
)

PAD, BOS, EOS = config.PAD_ID, config.BOS_ID, config.EOS_ID

WORDS = (
    "ein kleiner Hund läuft über die grüne Wiese und bellt laut "
    "a small dog runs across the meadow"
).split()
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
def tokenizer(tmp_path_factory):
    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    sentences = [
        " ".join(draw.choice(WORDS, draw.integers(2, 9))) for _ in range(300)
    ]
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return Tokenizer.train(sentences, 331, path)


@pytest.fixture(scope="module")
def model(tokenizer):
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


@pytest.fixture(scope="module")
def source_ids(tokenizer):
    texts = [text for text in SOURCES if text.strip()]
    return tokenizer.tokenize(texts).to_tensor(PAD)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(
    "wrong, called",
    [
        (None, "None"),
        (float("nan"), "nan"),
        (b"laut", "bytes"),
        (tf.constant("laut"), "EagerTensor"),
    ],
)
def test_what_is_no_text_to_translate_is_named(translator, wrong, called):
    with pytest.raises(UserError, match=f"received {called} in place 1;"):
        translator.translate(["laut", wrong])
    with pytest.raises(UserError, match="`texts` to be a list of texts"):
        translator.translate(None)


def search_graph(translator, options):
    return tf.function(
        lambda source: translator.text_model.search_ids(source, options),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
    )


def test_one_beam_is_the_loop_over_argmax_through_the_whole_model(
    translator, model, source_ids
):
    limit = 13
    options = Search(beam_size=1, max_length=limit)

    found = search_graph(translator, options)(source_ids)

    # No cache here: the model reads all of the target again at every step.
    target = np.full([len(source_ids), 1], BOS)
    ended = np.zeros(len(source_ids), bool)
    for _ in range(limit):
        logits = model((source_ids, target), training=False)[:, -1].numpy()
        logits[:, [PAD, BOS]] = -np.inf
        ids = np.where(ended, PAD, logits.argmax(axis=-1))
        ended |= ids == EOS
        target = np.concatenate([target, ids[:, None]], axis=1)
    assert ended.any() and not ended.all()
    np.testing.assert_array_equal(
        found.ids[:, 0], target[:, 1 : 1 + found.ids.shape[2]]
    )


@pytest.mark.parametrize("alpha, max_length", [(0.6, 11), (1.3, None)])
def test_every_score_is_that_of_the_whole_model_without_a_cache(
    translator, model, source_ids, alpha, max_length
):
    options = Search(
        beam_size=5, n_best=5, length_penalty=alpha, max_length=max_length
    )

    ids, scores, lengths = map(
        np.asarray, search_graph(translator, options)(source_ids)
    )

    for n in range(5):
        target = ids[:, n]
        target_in = np.pad(target, [[0, 0], [1, 0]], constant_values=BOS)
        log_probs = log_softmax(
            model((source_ids, target_in[:, :-1]), training=False)
        )
        chosen = np.take_along_axis(log_probs, target[:, :, None], axis=-1)
        total = np.where(target != PAD, chosen[:, :, 0], 0.0).sum(axis=-1)
        np.testing.assert_allclose(
            scores[:, n],
            total / ((5 + lengths[:, n]) / 6) ** alpha,
            rtol=1e-4,
            atol=1e-4,
        )
    assert len(np.unique(lengths)) > 2


def test_a_translation_is_at_most_fifty_tokens_longer_than_its_source(
    translator, source_ids
):
    # An end far away lets every hypothesis run to the limit.
    options = Search(beam_size=2, min_length=1_000)

    lengths = search_graph(translator, options)(source_ids).lengths

    source_lengths = (source_ids.numpy() != PAD).sum(axis=-1)
    np.testing.assert_array_equal(lengths[:, 0], source_lengths + 50)


@pytest.mark.slow
def test_translations_come_back_in_order_whatever_the_batches(translator):
    together = translator.translate(SOURCES, batch_tokens=100_000)

    assert together == translator.translate(SOURCES, batch_tokens=130)
    assert together == translator.translate(SOURCES, batch_tokens=1)
    assert together[::-1] == translator.translate(SOURCES[::-1])
    assert len(set(together)) == 6  # Two are blank, two are the same.


def test_n_best_are_hypotheses_best_first(translator):
    plain = translator.translate(SOURCES, beam_size=3)
    found = translator.translate(SOURCES, beam_size=3, n_best=3)

    assert [hypotheses[0].text for hypotheses in found] == plain
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert all(isinstance(item, Hypothesis) for item in hypotheses)
        assert len(hypotheses) == (3 if source.strip() else 1)
        scores = [item.score for item in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_a_text_that_other_pieces_spell_again_is_there_once(
    translator, monkeypatch
):
    texts = [["a", "b", "a", "c"], ["", "", "", ""]]
    monkeypatch.setattr(
        translator.tokenizer, "detokenize", lambda ids: tf.constant(texts)
    )
    scores = tf.constant([[-1.0, -2.0, -3.0, -5.0], [0.0] + [-np.inf] * 3])
    result = BeamResult(None, scores, None)
    found, kept = translator.text_model.texts_of(result, Search(n_best=4))
    assert found.numpy().tolist() == [[b"a", b"b", b"c", b""], [b""] * 4]
    assert kept.numpy().tolist() == [
        [-1.0, -2.0, -5.0, -np.inf],
        [0.0, *[-np.inf] * 3],
    ]
    drawn = Search(n_best=4, sampling=Sampling())
    found, _ = translator.text_model.texts_of(result, drawn)
    assert found.numpy().astype(str).tolist() == texts


def test_blank_texts_translate_to_nothing_without_the_model(tokenizer):
    class NoModel:
        vocab_size = tokenizer.vocab_size

    translator = Translator(NoModel(), tokenizer)
    blank = ["", " ", "\n", "\u3000\t", "\u200b"]

    assert translator.translate(blank) == [""] * 5
    assert translator.translate(blank, n_best=2) == [[Hypothesis("", 0.0)]] * 5
    assert translator.translate([]) == []


def test_in_a_graph_blank_texts_have_the_empty_translation(translator):
    texts = tf.constant(["", "laut", "  "])

    result = translator.text_model.search(texts, Search(n_best=2, max_length=5))

    for row in (0, 2):
        assert result.translations[row].numpy().tolist() == [b"", b""]
        assert result.scores[row].numpy().tolist() == [0.0, -np.inf]
    assert np.isfinite(result.scores[1]).all()


def test_no_texts_give_no_rows(translator):
    nothing = tf.constant([], tf.string)
    options = Search(n_best=3, max_source_length=7)

    result = translator.text_model.search(nothing, options)
    scores, num_tokens = translator.text_model.score_text(
        nothing, nothing, options
    )

    assert result.translations.shape == result.scores.shape == (0, 3)
    assert result.truncated.shape == scores.shape == num_tokens.shape == (0,)
    assert translator.score([], []) == []


def test_text_that_is_not_utf_8_gives_a_row(translator):
    texts = tf.constant([b"\xff\xfe dog", b"laut"])
    options = Search(max_length=5)

    result = translator.text_model.search(texts, options)

    alone = translator.text_model.search(texts[1:], options)
    assert np.isfinite(result.scores).all()
    assert result.translations[1].numpy() == alone.translations[0].numpy()
    # A lone surrogate, as from a file read with errors="surrogateescape".
    assert translator.translate(["dog \udcff"]) == translator.translate(
        ["dog ?"]
    )


def test_a_long_source_is_cut_and_flagged(translator, tokenizer):
    texts = [" ".join(WORDS[:count]) for count in (2, 5, 11)]
    ids = tokenizer.tokenize(texts)
    longest = len(ids[1])  # Just fits.
    options = Search(max_length=7, max_source_length=longest)

    result = translator.text_model.search(tf.constant(texts), options)

    assert result.truncated.numpy().tolist() == [False, False, True]
    cut = tf.concat([ids[2][: longest - 1], [EOS]], axis=0)
    expected = translator.text_model.search_ids(cut[None], options)
    np.testing.assert_allclose(
        result.scores[2], expected.scores[0], rtol=1e-4, atol=1e-4
    )
    untouched = translator.text_model.search(tf.constant(texts[:2]), options)
    np.testing.assert_allclose(
        result.scores[:2], untouched.scores, rtol=1e-4, atol=1e-4
    )


def test_translate_says_that_it_cut(translator, caplog):
    translator.translate(["laut", "laut " * 20], max_source_length=5)
    assert "Cut 1 of 2 texts after 5 tokens: number 2." in caplog.text


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_score_is_the_normalised_log_probability(
    translator, tokenizer, model, alpha
):
    sources = ["the dog runs", "laut", "die grüne Wiese"]
    targets = ["der kleine Hund", "the dog runs across", ""]

    # Two to a batch, so that padding would show.
    found = translator.score(
        sources, targets, length_penalty=alpha, batch_tokens=40
    )

    for source, target, score in zip(sources, targets, found, strict=True):
        source = tokenizer.tokenize([source]).to_tensor()
        target = tokenizer.tokenize([target]).to_tensor().numpy()
        target_in = np.pad(target[:, :-1], [[0, 0], [1, 0]])
        target_in[0, 0] = BOS
        log_probs = log_softmax(model((source, target_in), training=False))
        length = target.shape[1]
        total = log_probs[0, np.arange(length), target[0]].sum()
        expected = total / ((5 + length) / 6) ** alpha
        np.testing.assert_allclose(score, expected, rtol=1e-4)


@pytest.mark.parametrize("one", [None, "runs/text.en"])
def test_a_side_that_is_no_list_of_texts_is_not_scored(translator, one):
    for call in translator.score, translator.attention, translator.align:
        with pytest.raises(UserError, match="`sources` to be a list of texts"):
            call(one, ["laut"])
        with pytest.raises(UserError, match="`targets` to be a list of texts"):
            call(["laut"], one)


def test_translators_one_after_another_make_no_noise(translator, caplog):
    # TensorFlow warns of five functions that trace in a row.
    for _ in range(5):
        another = Translator(translator.model, translator.tokenizer)
        another.translate(["laut"], beam_size=1, max_length=2)
        another.align(["laut"], ["the dog"])
    assert not caplog.records


def test_a_setting_that_no_search_has_is_refused(translator):
    for wrong, meant in (("beam", "beam_size"), ("prefix", "prefixes")):
        with pytest.raises(UserError, match=f"did you mean `{meant}`"):
            translator.translate(["laut"], **{wrong: 2})
    for count in ("parallel", "batch_tokens"):
        with pytest.raises(UserError, match=f"`{count}` to be a whole number"):
            translator.translate(["laut"], **{count: "2"})


def test_how_to_search_is_told_by_a_search(translator):
    with pytest.raises(UserError, match="`options` to be a Search"):
        translator.n_best(["laut"], Sampling())


def test_a_blank_pair_scores_nothing(translator):
    assert translator.score([""], [" "]) == [0.0]
    scores, num_tokens = translator.text_model.score_text(
        tf.constant(["", "laut"]), tf.constant(["", ""]), Search()
    )
    assert num_tokens.numpy().tolist() == [0, 1]
    assert scores[0] == 0 and scores[1] < 0
    # A translation of nothing is no blank pair.
    assert translator.score([""], ["a"])[0] < 0


def test_a_scored_target_is_cut_where_the_search_would_stop(translator):
    source = tf.constant(["the dog"])
    options = Search(max_source_length=7)

    _, num_tokens = translator.text_model.score_text(
        source, tf.constant(["laut " * 200]), options
    )

    assert num_tokens.numpy().tolist() == [7 + 50]


def test_one_graph_serves_batches_of_every_shape(model, tokenizer, monkeypatch):
    translator = Translator(model, tokenizer)
    traced = []
    search_ids = translator.text_model.search_ids
    monkeypatch.setattr(
        translator.text_model,
        "search_ids",
        lambda *args: traced.append(1) or search_ids(*args),
    )

    for texts in (SOURCES, SOURCES[:1], SOURCES[2:5]):
        translator.translate(texts, max_length=5)
    assert len(traced) == 1
    translator.translate(SOURCES, max_length=6)
    assert len(traced) == 2


def scripted_translator(model, tokenizer, monkeypatch, scores):
    """A search that finds words with given scores, and the shapes it saw."""
    translator = Translator(model, tokenizer)
    word = tokenizer.tokenize(["laut"])[0]
    shapes = []

    def search_ids(source, options):
        seen = tf.numpy_function(
            lambda array: shapes.append(array.shape) or np.int32(0),
            [source],
            tf.int32,
        )
        batch = tf.shape(source)[0] + seen
        ids = tf.tile(word[None, None, :], [batch, len(scores), 1])
        return BeamResult(
            ids, tf.tile([scores], [batch, 1]), tf.zeros([batch, len(scores)])
        )

    monkeypatch.setattr(translator.text_model, "search_ids", search_ids)
    return translator, shapes


def test_places_without_a_hypothesis_are_left_out(
    model, tokenizer, monkeypatch
):
    translator, _ = scripted_translator(
        model, tokenizer, monkeypatch, [-1.5, -np.inf]
    )
    assert translator.translate(["dog"], n_best=2) == [
        [Hypothesis("laut", -1.5)]
    ]


def test_a_batch_has_sources_of_similar_length_within_the_budget(
    model, tokenizer, monkeypatch
):
    translator, shapes = scripted_translator(
        model, tokenizer, monkeypatch, [-1.0]
    )
    lengths = [2, 17, 5, 3, 17, 2, 11, 3]  # With the end token.
    word = next(w for w in "abdegh" if len(tokenizer.tokenize([w])[0]) == 2)
    texts = [" ".join([word] * (length - 1)) for length in lengths]

    # No output is longer than 13, so rows cost 17, 13, 13, …
    translator.translate(texts, max_length=13, batch_tokens=40, parallel=1)

    assert shapes == [(2, 17), (3, 11), (3, 3)]


def test_a_new_seed_between_two_translations_does_no_harm(translator):
    before = translator.translate(SOURCES), translator.score(["a"], ["b"])

    # Makes TensorFlow unload the vocabulary.
    keras.utils.set_random_seed(1)

    after = translator.translate(SOURCES), translator.score(["a"], ["b"])
    assert after == before


def test_progress_counts_up_to_all_texts(translator):
    heard = []

    translator.translate(
        SOURCES,
        batch_tokens=130,
        progress=lambda done, total: heard.append((done, total)),
    )

    done = [count for count, _ in heard]
    assert len(done) > 2 and done == sorted(done) and done[-1] == len(SOURCES)
    assert {total for _, total in heard} == {len(SOURCES)}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory, model, tokenizer):
    """A run with one checkpoint."""
    path = tmp_path_factory.mktemp("run")
    model_config = config.ModelConfig(tokenizer.vocab_size, **SMALL_SIZES)
    make_run(model_config).save(path)
    (path / "tokenizer.model").write_bytes(
        tokenizer.processor._model_resource._model
    )
    trained = Transformer(**dataclasses.asdict(model_config))
    trained.set_weights(model.get_weights())
    trained.compile(optimizer="sgd", loss="mse")
    checkpoints.save_checkpoint(path, trained, checkpoints.Progress(step=7))
    return path


def test_a_run_directory_holds_all_it_takes(run_dir, translator):
    loaded = Translator.from_run(run_dir, average=1)
    assert loaded.translate(SOURCES) == translator.translate(SOURCES)


def test_a_run_without_a_vocabulary_is_refused(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.model").unlink()
    with pytest.raises(config.UserError, match="Expected a vocabulary at"):
        Translator.from_run(tmp_path / "run", average=1)


def test_a_run_with_the_vocabulary_of_another_is_refused(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "run")
    path = tmp_path / "run" / "tokenizer.model"
    Tokenizer.train(WORDS, 293, path)
    with pytest.raises(config.UserError) as error:
        Translator.from_run(tmp_path / "run", average=1)
    assert "Expected 331 pieces in" in str(error.value)
    assert "restore the file of this run" in str(error.value)


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(config.UserError, match="Expected a run directory"):
        Translator.from_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "options", [{"beam_size": 0}, {"n_best": 5}, {"max_source_length": 1}]
)
def test_settings_that_make_no_sense_are_refused(translator, options):
    [name] = options
    with pytest.raises(ValueError, match=f"Expected `{name}` to be "):
        translator.translate(["laut"], **options)


def test_one_text_in_place_of_a_list_is_refused(translator):
    with pytest.raises(ValueError, match="to be a list of texts"):
        translator.translate("laut")
    with pytest.raises(ValueError, match="2 sources, 1 targets"):
        translator.score(["a", "b"], ["c"])


def test_a_model_of_another_vocabulary_is_refused(tokenizer):
    class OtherModel:
        vocab_size = 29

    with pytest.raises(ValueError, match="Received: 29 and 331 pieces"):
        Translator(OtherModel(), tokenizer)
