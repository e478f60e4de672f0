"""`keras-transformer score` and `keras-transformer view`."""

import html

import numpy as np
import pytest
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


@pytest.mark.stands_for("pages of the verb view")
def test_view_writes_a_page_with_a_text_and_its_translations(
    run_dir, translator, tmp_path
):
    text, output = "a <small> dog", tmp_path / "page.html"

    flags = ("--beam-size", 3, "--n-best", 2, "--max-length", 7)
    assert run("view", run_dir, text, "--output", output, *flags) == 0

    page = output.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "a &lt;small&gt; dog" in page and "<small>" not in page
    (expected,) = translator.translate(
        [text], n_best=2, beam_size=3, max_length=7
    )
    for translation, score in expected:
        assert html.escape(translation) in page
        assert f"{score:.5f}"[:-1] in page  # As JSON, in 5 decimals.
