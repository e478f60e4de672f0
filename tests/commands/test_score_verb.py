"""`keras-transformer score`."""

import numpy as np
from verb_calls import GERMAN, SOURCES, run, write_lines

from keras_transformer.translation import unfinished


def test_score_prints_what_the_search_found(
    run_dir, translator, source_file, tmp_path, capsysbinary, monkeypatch
):
    monkeypatch.setattr(unfinished, "CHUNK", 3)
    target = tmp_path / "target.de"
    texts = [GERMAN[i % len(GERMAN)] for i in range(len(SOURCES))]
    write_lines(target, texts)

    files = ("--source", source_file, "--target", target)
    code = run("score", run_dir, *files, "--length-penalty", 0.9)

    found = [float(row) for row in capsysbinary.readouterr().out.split()]
    expected = translator.score(SOURCES, texts, length_penalty=0.9)
    assert code == 0
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_score_needs_two_texts_of_one_length(
    run_dir, source_file, tmp_path, capsys
):
    target = tmp_path / "target.de"
    target.write_text("eins\n")
    texts = ["--source", source_file, "--target", target]
    assert run("score", run_dir, *texts) == 2
    error = capsys.readouterr().err
    assert "--source" in error and "--target" in error
