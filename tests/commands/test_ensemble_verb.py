"""Verbs that search with several runs: `--ensemble`."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypotheses import assert_answered
from verb_calls import (
    ENGLISH,
    GERMAN,
    SOURCES,
    draw_weights,
    on_one_line,
    refused,
    run,
    write_lines,
)

from keras_transformer.decoding.id_model import IdModel
from keras_transformer.model import Transformer
from keras_transformer.run import Run
from keras_transformer.runs import checkpoints
from keras_transformer.translation.model_card import ModelCard
from keras_transformer.translation.translator import Translator


@pytest.fixture(scope="module")
def other(run_dir, tmp_path_factory):
    """A run of the same vocabulary with other weights."""
    path = shutil.copytree(run_dir, tmp_path_factory.mktemp("other") / "run")
    shutil.rmtree(path / "checkpoints")
    model = Transformer.from_config(
        Run(run_dir).translator().model.get_config()
    )
    model.compile(optimizer="sgd", loss="mse")
    draw_weights(model, seed=11)
    checkpoints.save_checkpoint(path, model, checkpoints.Progress(11))
    return path


@pytest.mark.slow
def test_verbs_search_with_all_models(
    run_dir, other, translator, source_file, tmp_path, capsys
):
    models = [translator.model, Run(other).translator().model]
    given = ("--input", source_file)
    both = Translator(models, translator.tokenizer, translator.search)
    assert run("translate", run_dir, *given, "--ensemble", other) == 0
    found = capsys.readouterr().out.split("\n")[:-1]
    assert found == [on_one_line(x) for x in both.translate(SOURCES)]
    assert found != [on_one_line(x) for x in translator.translate(SOURCES)]

    words = ["--ensemble", other]
    for side, lines in (("source", ENGLISH), ("target", GERMAN)):
        write_lines(tmp_path / side, lines)
        words += [f"--{side}", tmp_path / side]
    assert run("score", run_dir, *words) == 0
    scores = np.array(capsys.readouterr().out.split(), float)
    np.testing.assert_allclose(scores, both.score(ENGLISH, GERMAN), atol=1e-4)


@pytest.mark.stands_for("a search with several models")
def test_an_evaluation_of_an_ensemble_is_kept_apart(run_dir, other, capsys):
    # Other tests may have evaluated the run.
    scores_of_run = Run(run_dir).card().scores
    assert run("evaluate", run_dir, "--ensemble", other) == 0
    folder = run_dir / "evaluation" / "test.ensemble"
    figures = json.loads((folder / "scores.json").read_text())
    assert figures["ensemble"] == {str(other): ["step-000000011"]}
    assert (folder / "translation.txt").exists()
    # The card of an ensemble has its scores, that of a run its own.
    assert Run(run_dir).card().scores == scores_of_run
    card = Run(run_dir, [other]).card()
    assert card.scores[0]["name"] == "BLEU"
    assert card.parameters == 2 * Run(run_dir).card().parameters


@pytest.mark.slow
def test_an_export_holds_all_models(run_dir, other, tmp_path):
    output = tmp_path / "exported"
    flags = ("--output", output, "--ensemble", other)
    assert run("export", run_dir, *flags, "--beam-size", 2) == 0
    path = output / "1"
    weights = ModelCard.load(path).weights
    assert weights == Run(run_dir, [other]).card().weights
    signatures = tf.saved_model.load(str(path)).signatures
    found = signatures["n_best"](text=tf.constant(SOURCES))
    translator = Run(run_dir, [other]).translator()
    options = dict(n_best=2, beam_size=2, max_source_length=256)
    expected = translator.translate(SOURCES, **options)
    assert_answered(found, expected, n_best=2)
    looks = signatures["attention"](
        source=tf.constant(ENGLISH), target=tf.constant(GERMAN)
    )
    tokenize = translator.tokenizer.tokenize
    pairs = [tokenize(side).to_tensor() for side in (ENGLISH, GERMAN)]
    models = translator.id_model.models
    of_each = [IdModel(model).attention_ids(*pairs) for model in models]
    expected = np.mean(of_each, axis=0)
    np.testing.assert_allclose(looks["attention"], expected, atol=1e-5)


def test_another_vocabulary_is_refused(run_dir, tmp_path, source_file, capsys):
    other = shutil.copytree(run_dir, tmp_path / "other")
    vocabulary = other / "tokenizer.model"
    words = Run(run_dir).translator().tokenizer
    type(words).train(GERMAN, words.vocab_size, vocabulary)
    given = ("--input", source_file, "--ensemble", other)
    message = refused(capsys, "translate", run_dir, *given)
    assert f"--tokenizer {run_dir / 'tokenizer.model'}" in message
