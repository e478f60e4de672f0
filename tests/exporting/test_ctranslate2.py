"""The CTranslate2 model says what the Keras model says."""

import re

import ctranslate2
import numpy as np
import pytest
import sample_runs
import sentencepiece
from programs import python
from project_table import ROOT
from small_models import make_model

from keras_transformer.__main__ import main
from keras_transformer.config import UserError
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.exporting import ctranslate2 as ctranslate2_export
from keras_transformer.machine import devices
from keras_transformer.translation import lexicon
from keras_transformer.translation.translator import Translator

# Spaces of several kinds, wide letters, a control character, unseen characters.
TEXT = " three\u3000\tｆｏｕｒ \u200bfive\x07 ～Ж🙂 "


@pytest.fixture(scope="module")
def trained():
    return sample_runs.digit_translator()


@pytest.fixture(scope="module")
def exported_trained(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "trained"
    return ctranslate2_export.export(trained, folder)


@pytest.fixture(scope="module")
def exported(small_translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    return ctranslate2_export.export(small_translator, folder)


def theirs(folder, texts, **options):
    """CTranslate2's texts and scores, with α = 0 and our limits."""
    pieces = load_pieces(folder)
    # On AMD's processors without VNNI its sums of int8 overflow.
    kind = "default" if devices.has("VNNI") else "float32"
    translator = ctranslate2.Translator(str(folder), compute_type=kind)
    how = dict(length_penalty=0, min_decoding_length=0, return_scores=True)
    results = translator.translate_batch(
        pieces.encode(texts, out_type=str), **how, **options
    )
    said = [pieces.decode(result.hypotheses[0]) for result in results]
    return said, [result.scores[0] for result in results]


def load_pieces(folder):
    path = str(folder / "tokenizer.model")
    return sentencepiece.SentencePieceProcessor(model_file=path)


@pytest.mark.stands_for("exports to CTranslate2")
@pytest.mark.parametrize(
    "beam_size", [pytest.param(1, marks=pytest.mark.slow), 4]
)
def test_a_trained_model_answers_alike(trained, exported_trained, beam_size):
    texts, right = sample_runs.digit_corpus()["test"]
    how = dict(beam_size=beam_size, length_penalty=0.0, n_best=1)
    expected, scores = zip(
        *(best for (best,) in trained.translate(texts, **how)), strict=True
    )
    # Otherwise both might agree on nonsense.
    assert sum(map(str.__eq__, expected, right)) > 100
    found, their_scores = theirs(exported_trained, texts, beam_size=beam_size)
    assert found == [*expected]
    np.testing.assert_allclose(their_scores, scores, rtol=0, atol=1e-3)


def test_quantisation_is_in_the_file(small_translator, exported, tmp_path):
    int8 = ctranslate2_export.export(
        small_translator, tmp_path / "int8", "int8"
    )
    assert ctranslate2.Translator(str(exported)).compute_type == "float32"
    assert ctranslate2.Translator(str(int8)).compute_type == "int8_float32"


@pytest.mark.parametrize(
    "sizes",
    [
        # No width of all three heads is the model's 10.
        dict(key_dim=5, value_dim=7),
        dict(key_dim=7, value_dim=5, positions="learned"),
        dict(encoder_layers=1, activation="gelu", norm_epsilon=0.25),
    ],
)
def test_every_shape_scores_alike(tmp_path, sizes):
    tokenizer = sample_runs.digit_tokenizer()
    model = make_model(vocab_size=tokenizer.vocab_size, **sizes)
    # Sums of many tokens, so keep them small.
    model.embedding.table.assign(0.2 * model.embedding.table)
    translator = Translator(model, tokenizer)
    folder = ctranslate2_export.export(translator, tmp_path / "model")
    # Longer than the table of 13 learned positions, and not.
    sources = ["six eight " * 9, "two", "one two three"]
    targets = ["drei acht " * 8, "neun eins", "vier"]
    pieces = load_pieces(folder)
    results = ctranslate2.Translator(str(folder)).score_batch(
        pieces.encode(sources, out_type=str),
        pieces.encode(targets, out_type=str),
    )
    expected = translator.score(sources, targets, length_penalty=0.0)
    assert len(results[0].log_probs) > 13
    np.testing.assert_allclose(
        [sum(result.log_probs) for result in results], expected, rtol=1e-4
    )


def test_its_pieces_are_the_tokenizer_s(small_translator, exported):
    ids = small_translator.tokenizer.tokenize([TEXT]).to_list()[0]
    assert load_pieces(exported).encode(TEXT) == ids[:-1]
    found = load_pieces(exported).decode(ids[:-1])
    assert found == "three four five ～Ж🙂"  # Read generously.


@pytest.mark.slow
def test_the_documented_lines_need_no_keras(trained, exported_trained):
    page = (ROOT / "docs" / "guides" / "precision.md").read_text()
    (example,) = re.findall("```\n(import ctranslate2.*?)```", page, re.S)
    source = "seven one four"
    example = example.replace("ct2/mine", str(exported_trained))
    example = example.replace("A dog runs.", source)
    example += "\nimport sys; print({'keras', 'tensorflow'} & set(sys.modules))"
    output = python("-c", example).stdout
    expected = trained.translate([source])
    assert expected == ["sieben eins vier"]
    assert output == f"{expected}\nset()\n"


def test_what_cannot_be_written_is_refused(small_translator, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ctranslate2_export.export(small_translator, tmp_path / "file/model")
    with pytest.raises(ValueError, match="float32, int8"):
        ctranslate2_export.export(small_translator, tmp_path / "x", "bfloat16")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_command_writes_the_model_and_prints_where(
    small_run, exported, tmp_path, capsys
):
    folder = tmp_path / "new" / "model"
    arguments = ["--run-dir", small_run, "--output", folder]
    arguments = [*map(str, arguments), "--format", "ctranslate2"]
    assert main(["export", *arguments]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    for path in exported.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    # Once more into the same folder.
    assert main(["export", *arguments]) == 2
    assert "exists already and is left" in capsys.readouterr().err


@pytest.mark.parametrize(
    "lacked, named",
    [
        (dict(activation="softsign"), "softsign"),
        (dict(restriction=3), "here 3"),
    ],
)
def test_what_ctranslate2_lacks_is_refused(tmp_path, lacked, named):
    tokenizer = sample_runs.digit_tokenizer()
    model = make_model(vocab_size=tokenizer.vocab_size, **lacked)
    with pytest.raises(UserError, match=named):
        ctranslate2_export.export(Translator(model, tokenizer), tmp_path / "x")


@pytest.mark.slow
def test_a_shortlist_leads_both_to_the_same(
    trained, exported_trained, monkeypatch
):
    monkeypatch.setattr(lexicon, "COMMON", 2)
    monkeypatch.setattr(lexicon, "BEST", 3)
    corpus, words = sample_runs.digit_corpus(), trained.tokenizer
    pairs = zip(*corpus["train"], strict=True)
    records = TokenisedCorpus.in_memory(pairs, words, 64)
    path = exported_trained / "vmap.txt"
    lexicon.write(path, lexicon.learn(records, words), words)
    shortlist = lexicon.read(path, words)
    texts = corpus["test"][0][:23]
    how = dict(beam_size=4, use_vmap=True, max_batch_size=1)
    found, scores = theirs(exported_trained, texts, **how)
    translator = Translator(trained.model, words, shortlist=shortlist)
    # A batch would have the candidates of all its texts.
    how = dict(length_penalty=0.0, n_best=1)
    best = [translator.translate([text], **how)[0][0] for text in texts]
    # They leave padding out of the sum, which is hardly ever probable; and
    # their search may miss a better text, as one of these 23.
    gains = np.array([x for _, x in best]) - scores
    same = np.array([text for text, _ in best]) == found
    assert sum(same) >= 21 and min(gains) > -2e-3 and max(gains[same]) < 2e-3
    # With so few, some pieces are missing.
    assert found != trained.translate(texts, length_penalty=0.0)
