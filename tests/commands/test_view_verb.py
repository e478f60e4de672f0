"""`keras-transformer view`: one page with every text."""

import html

import pytest
from verb_calls import run

FLAGS = ("--beam-size", 3, "--n-best", 2, "--max-length", 7)


@pytest.mark.stands_for("pages of the verb view")
def test_view_writes_one_page_with_every_text_and_its_translations(
    run_dir, translator, tmp_path, capsys
):
    texts = ["the dog barks", "a <small> dog"]
    output = tmp_path / "page.html"

    assert run("view", run_dir, *texts, "--output", output, *FLAGS) == 0

    page = output.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "a &lt;small&gt; dog" in page and "<small>" not in page
    expected = translator.translate(texts, n_best=2, beam_size=3, max_length=7)
    for hypotheses in expected:
        for text, score in hypotheses:
            assert html.escape(text) in page
            assert f"{score:.5f}"[:-1] in page  # As JSON, in 5 decimals.
    before = page
    assert run("view", run_dir, "the dog", "--output", output) == 2
    assert "--output" in capsys.readouterr().err
    assert output.read_text("utf-8") == before


def test_a_text_with_nothing_to_draw_is_refused(run_dir, capsys):
    assert run("view", run_dir, "a dog", " \t") == 2
    assert "TEXT" in capsys.readouterr().err
