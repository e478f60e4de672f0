"""`keras-transformer shortlist`, and the verbs that take its file."""

import json

import pytest
import tensorflow as tf
from verb_calls import SOURCES, on_one_line, run

from keras_transformer.run import Run
from keras_transformer.translation.translator import Translator


@pytest.fixture
def shortlist(run_dir, tmp_path, capsys):
    """A shortlist with so few candidates that translations change."""
    path = tmp_path / "shortlist.tsv"
    few = ("--common", 3, "--best", 1, "--pairs", 5)
    assert run("shortlist", run_dir, "--output", path, *few) == 0
    assert capsys.readouterr().out == f"{path}\n"
    return path


def test_translate_and_evaluate_write_candidates_alone(
    run_dir, translator, shortlist, source_file, capsys
):
    assert run("translate", run_dir, source_file, "--shortlist", shortlist) == 0
    found = capsys.readouterr().out.split("\n")[:-1]
    expected = Translator.from_run(run_dir, shortlist=shortlist)
    assert found == [on_one_line(x) for x in expected.translate(SOURCES)]
    assert found != [on_one_line(x) for x in translator.translate(SOURCES)]

    assert run("evaluate", run_dir, "--shortlist", shortlist) == 0
    figures = json.loads((run_dir / "evaluation" / "test.json").read_text())
    assert figures["shortlist"] == str(shortlist)


@pytest.mark.slow
def test_an_export_holds_its_shortlist(run_dir, shortlist, tmp_path):
    output = tmp_path / "exported"
    flags = ("--output", output, "--shortlist", shortlist, "--beam-size", 2)
    assert run("export", run_dir, *flags) == 0
    shortlist.unlink()
    signatures = tf.saved_model.load(str(output / "1")).signatures
    found = signatures["serving_default"](text=tf.constant(SOURCES))
    lists = Run(run_dir).shortlist(shortlist, common=3, best=1, pairs=5)
    expected = Run(run_dir).translator(shortlist=lists)
    # A batch has the candidates of all its texts: they stay in one.
    assert [x.decode() for x in found["translation"].numpy()] == (
        expected.translate(
            SOURCES, beam_size=2, max_source_length=256, parallel=1
        )
    )


def test_a_shortlist_that_cannot_be_is_one_sentence(
    run_dir, source_file, tmp_path, capsys
):
    path = tmp_path / "shortlist.tsv"
    for flag in ("--common", "--best", "--pairs"):
        assert run("shortlist", run_dir, "--output", path, flag, 0) == 2
        assert f"Expected {flag} to be at least 1" in capsys.readouterr().err
    assert not path.exists()
    assert run("translate", run_dir, source_file, "--shortlist", path) == 2
    assert f"--shortlist, received {path} (No such" in capsys.readouterr().err
