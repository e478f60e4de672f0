"""The page as text, and what of it needs no script."""

import html.parser
import pathlib

import numpy as np
import pytest
from random_explanations import make_explanation

from keras_transformer.viewing import viewer


class Reader(html.parser.HTMLParser):
    """Collects tags with their attributes, and text outside of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.inside = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside != "script" and data.strip():
            self.words.append(data)


def test_the_script_is_short_whole_and_leaves_no_way_to_its_own_end():
    text = viewer.script()
    assert len(text.encode()) <= 57_000
    assert "</script" not in text.lower() and "<!--" not in text
    folder = pathlib.Path(viewer.__file__).parent / "script"
    assert {path.name for path in folder.iterdir()} == set(viewer.SCRIPTS)


def test_a_fragment_needs_no_other_file(explanation):
    for tag, attributes in Reader(explanation.to_html()).tags:
        assert tag not in ("link", "iframe")
        address = attributes.get("src", "data:")
        assert address.startswith("data:")


def test_texts_say_their_language_and_from_where_they_are_written():
    made = make_explanation(languages=("ar_EG", "ja"))
    texts = [of for tag, of in Reader(made.to_html()).tags if tag == "bdi"]
    arabic = {"lang": "ar-EG", "dir": "rtl"}
    japanese = {"lang": "ja", "dir": "auto"}
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
    with pytest.raises(ValueError, match="`layer` must be .*Received"):
        explanation.plot(layer=2)


def test_a_page_is_whole_and_says_what_it_is(explanation, tmp_path):
    path = tmp_path / "page.html"
    explanation.save_html(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    tags = Reader(text).tags
    assert ("html", {"lang": "en"}) in tags
    assert ("meta", {"charset": "utf-8"}) in tags
    assert [child.name for child in tmp_path.iterdir()] == ["page.html"]


def test_a_page_of_several_texts_has_a_title_for_each_and_one_script():
    several = [make_explanation(seed=seed, source_length=3) for seed in (0, 1)]
    several.append(make_explanation(seed=2, source=["▁long"] * 31))
    text = viewer.document("3 texts", [each.to_html() for each in several])
    assert text.count(viewer.script()) == 1
    reader = Reader(text)
    titles = [tag for tag, _ in reader.tags if tag == "h1"]
    assert len(titles) == 3
    assert "The lamp" in reader.words
    assert "3 texts: attention and beam search" in reader.words
