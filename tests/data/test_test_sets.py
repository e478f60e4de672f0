"""Test sets that sacreBLEU knows, from its cache: nothing is downloaded."""

import pathlib
import urllib.request

import pytest
from sacrebleu.dataset import DATASETS

from keras_transformer.config import UserError
from keras_transformer.data.corpora import absolute_name, open_corpus

SOURCES = ["A dog runs.", "Two children &amp; a ball."]
FIRST = ["Ein Hund läuft.", "Zwei Kinder und ein Ball."]
SECOND = ["Ein Hund rennt.", "Zwei Kinder, ein Ball."]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """SacreBLEU's cache, and no network beside it."""

    def refuse(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    for name in ("wmt14/full", "wmt20/tworefs"):
        monkeypatch.setattr(DATASETS[name], "_outdir", str(tmp_path / name))
        raw = str(tmp_path / name / "raw")
        monkeypatch.setattr(DATASETS[name], "_rawdir", raw)
    return tmp_path


def put(folder, name, **references):
    """Files as sacreBLEU keeps them, also those of fields that nobody reads."""
    dataset = DATASETS[name]
    for field in dataset.fieldnames("en-de"):
        path = pathlib.Path(dataset._get_txt_file_path("en-de", field))
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = references.get(field.replace(":", "_"), SOURCES)
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")


@pytest.mark.filterwarnings("error")  # Files left open.
@pytest.mark.parametrize("codes", [("EN", "de_AT"), ("eng", "deu")])
def test_a_test_set_is_read_from_the_cache(cache, codes):
    put(cache, "wmt14/full", ref=FIRST)

    corpus = open_corpus("sacrebleu:wmt14/full", *codes)

    assert corpus.splits == ("test",)
    assert list(corpus.pairs("test")) == list(zip(SOURCES, FIRST, strict=True))
    assert corpus.references("test") == [(text,) for text in FIRST]
    # Its name is not a folder.
    assert absolute_name("sacrebleu:wmt14/full") == "sacrebleu:wmt14/full"


def test_all_references_of_a_set_are_there_and_a_pair_has_the_first(cache):
    put(cache, "wmt20/tworefs", ref_0=FIRST, ref_1=SECOND)

    corpus = open_corpus("sacrebleu:wmt20/tworefs", "en", "de")

    found = corpus.references("test")
    assert found == list(zip(FIRST, SECOND, strict=True))
    assert [target for _, target in corpus.pairs("test")] == FIRST


def test_a_set_that_cannot_be_had_is_said_in_a_sentence(cache):
    corpus = open_corpus("sacrebleu:wmt14/full", "en", "de")
    with pytest.raises(UserError, match="wmt14/full in en-de"):
        list(corpus.pairs("test"))


@pytest.mark.parametrize(
    "name, target, received",
    [("wmt77", "de", "wmt77; .*wmt24"), ("wmt14/full", "sw", "en-sw; .*cs-en")],
)
def test_an_unknown_set_or_pair_of_languages_is_named(name, target, received):
    with pytest.raises(UserError, match=f"received {received}"):
        open_corpus(f"sacrebleu:{name}", "en", target)
