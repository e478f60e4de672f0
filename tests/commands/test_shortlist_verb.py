"""`keras-transformer shortlist`, and the verbs that take its file."""

import dataclasses
import json
import shutil

import pytest
import tensorflow as tf
from verb_calls import SOURCES, on_one_line, refused, run

import keras_transformer as kt
from keras_transformer.data.records import TokenisedCorpus
from keras_transformer.run import Run
from keras_transformer.translation import lexicon


@pytest.fixture
def shortlist(run_dir, tmp_path, capsys, monkeypatch):
    """A shortlist with so few candidates that translations change."""
    path = tmp_path / "shortlist.tsv"
    monkeypatch.setattr(lexicon, "COMMON", 3)
    monkeypatch.setattr(lexicon, "BEST", 1)
    few = ("--output", path, "--pairs", 5)
    assert run("shortlist", run_dir, *few) == 0
    assert capsys.readouterr().out == f"{path}\n"
    return path


@pytest.mark.stands_for("a search of a shortlist")
def test_translate_and_evaluate_write_candidates_alone(
    run_dir, translator, shortlist, source_file, capsys
):
    given = ("--input", source_file)
    assert run("translate", run_dir, *given, "--shortlist", shortlist) == 0
    found = capsys.readouterr().out.split("\n")[:-1]
    expected = Run(run_dir).translator(shortlist=shortlist)
    assert found == [on_one_line(x) for x in expected.translate(SOURCES)]
    assert found != [on_one_line(x) for x in translator.translate(SOURCES)]

    assert run("evaluate", run_dir, "--shortlist", shortlist) == 0
    figures = run_dir / "evaluation" / "test" / "scores.json"
    assert json.loads(figures.read_text())["shortlist"] == str(shortlist)


@pytest.mark.slow
def test_an_export_holds_its_shortlist(run_dir, shortlist, tmp_path):
    output = tmp_path / "exported"
    flags = ("--output", output, "--shortlist", shortlist, "--beam-size", 2)
    assert run("export", run_dir, *flags) == 0
    shortlist.unlink()
    signatures = tf.saved_model.load(str(output / "1")).signatures
    found = signatures["serving_default"](text=tf.constant(SOURCES))
    lists = Run(run_dir).shortlist(shortlist, pairs=5)
    expected = Run(run_dir).translator(shortlist=lists)
    # A batch has the candidates of all its texts: they stay in one.
    assert [x.decode() for x in found["translation"].numpy()] == (
        expected.translate(
            SOURCES, beam_size=2, max_source_length=256, parallel=1
        )
    )


def test_the_records_of_a_training_are_enough_for_a_shortlist(
    run_dir, corpus, tmp_path, capsys
):
    texts = shutil.copytree(corpus, tmp_path / "corpus")
    alone = shutil.copytree(run_dir, tmp_path / "run")
    config = dataclasses.replace(Run(alone).config, corpus=str(texts))
    config.save(alone)
    of_text, of_records = tmp_path / "text.tsv", tmp_path / "records.tsv"
    assert run("shortlist", alone, "--output", of_text) == 0
    shutil.rmtree(texts)
    without = refused(capsys, "shortlist", alone, "--output", of_records)
    assert str(texts) in without
    TokenisedCorpus.build(
        kt.open_corpus(corpus).pairs("train"),
        *(kt.Tokenizer.load(alone), alone / "records" / "train", 256),
    )
    assert run("shortlist", alone, "--output", of_records) == 0
    assert of_records.read_text() == of_text.read_text()
    # An imported run has neither records nor a corpus.
    shutil.rmtree(alone / "records")
    dataclasses.replace(config, is_imported=True).save(alone)
    given = ("--output", tmp_path / "x.tsv")
    assert "`corpus`" in refused(capsys, "shortlist", alone, *given)
