"""The page as text, and what of it needs no script."""

import json
import math
import pathlib
import re

import numpy as np
import pytest
from random_explanations import make_explanation

from keras_transformer.viewing import viewer


def without_scripts(page):
    return re.sub("<script.*?</script>", "", page, flags=re.S)


def test_the_script_is_short_whole_and_leaves_no_way_to_its_own_end():
    text = viewer.script()
    assert len(text.encode()) <= 57_000
    assert "</script" not in text.lower() and "<!--" not in text
    folder = pathlib.Path(viewer.__file__).parent / "script"
    assert {path.name for path in folder.iterdir()} == set(viewer.SCRIPTS)


def test_texts_say_their_language_and_from_where_they_are_written():
    made = make_explanation(languages=("ar_EG", "ja"))
    page = without_scripts(made.to_html())
    texts = re.findall(r'<bdi lang="(.*?)" dir="(.*?)"', page)
    arabic, japanese = ("ar-EG", "rtl"), ("ja", "auto")
    assert texts == [arabic, arabic, *[japanese] * len(made.translations)]


def test_a_heat_map_has_the_pieces_and_their_weights(explanation):
    found = explanation.attention()
    figure = explanation.plot(layer=1, head=-1)
    axes, _ = figure.axes
    for ticks, pieces in (
        (axes.get_yticklabels(), found.target_pieces),
        (axes.get_xticklabels(), found.source_pieces),
    ):
        assert [tick.get_text() for tick in ticks] == pieces
    (cells,) = axes.get_images()
    np.testing.assert_array_equal(cells.get_array(), found.cross[1, -1])
    (cells,) = explanation.plot("decoder").axes[0].get_images()
    mean = found.decoder.mean(axis=(0, 1))
    np.testing.assert_allclose(cells.get_array(), mean, atol=1e-6)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_is_not_there_is_not_drawn(explanation):
    with pytest.raises(ValueError, match="`layer`"):
        explanation.plot(layer=2)


def test_a_page_is_whole_and_says_what_it_is(explanation, tmp_path):
    path = tmp_path / "page.html"
    explanation.save_html(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert '<html lang="en">' in text and '<meta charset="utf-8">' in text
    assert text.count(viewer.script()) == 1
    page = without_scripts(text)
    assert f"<title>{explanation.source}: attention and beam search<" in page
    assert [child.name for child in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028"])
def test_no_string_ends_the_script_that_holds_it(text):
    facts = {"source": text, "scores": (-math.inf, np.float32(-1.25))}
    found = viewer.json_for_script(facts)
    assert "<" not in found and found.isascii()
    assert json.loads(found) == {"source": text, "scores": [None, -1.25]}
