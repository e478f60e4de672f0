"""The examples on the pages on Python run as they are printed."""

import doctest
import pathlib
import re

import pytest

import keras_transformer as kt
from keras_transformer import layers

API = pathlib.Path(__file__).parents[2] / "docs" / "api"
PAGES = sorted(path for path in API.glob("*.md") if path.name != "index.md")
FLAGS = doctest.ELLIPSIS


def examples(text):
    """The examples of a page, without the fences around them."""
    return "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S))


def sections(page):
    """The sections of a page by the name in their heading."""
    parts = re.split(r"^## `(\w+)`\n", page.read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.example
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = examples(page.read_text("utf-8"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, None, 0)
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert test.examples and not said, "".join(said)


def test_every_public_name_and_layer_has_its_section_with_an_example():
    of_layers = sections(API / "layers.md")
    shown = {
        name: examples(text)
        for page in PAGES
        if page.name != "layers.md"
        for name, text in sections(page).items()
    }
    for name in set(kt.__all__) - {"layers"}:
        used = rf"\b(kt\.|run = kt\.){name}\b"
        assert re.search(used, shown.get(name, "")), name
    public = [
        name
        for name, value in vars(layers).items()
        if not name.startswith("_") and callable(value)
    ]
    assert public
    for name in public:
        assert f"kt.layers.{name}" in examples(of_layers.get(name, "")), name
