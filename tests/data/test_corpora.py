"""Corpora: what is read, in which direction, and what bad input says."""

import contextlib
import gzip
import lzma

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_transformer import config
from keras_transformer.commands import text_streams
from keras_transformer.data import lines
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.pieces import read_symbols
from keras_transformer.runs.run_config import RunConfig

GERMAN = [f"Satz {number} für dich" for number in range(7)]
ENGLISH = [f"sentence {number} for you" for number in range(7)]


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return str(folder)


def test_a_folder_pairs_its_files_line_by_line(tmp_path):
    files = {"train.en": b"one\ntwo\n", "train.de": "eins\nzwölf\n".encode()}
    files |= {"test.en": b"three\n", "test.de": b"drei\n"}
    name = write(tmp_path, {**files, "one_language.en": b"alone\n"})
    corpus = open_corpus(name, "en", "de")
    assert set(corpus.splits) == {"train", "test"}
    for _ in range(2):  # It can be read again.
        pairs = list(corpus.pairs("train"))
        assert pairs == [("one", "eins"), ("two", "zwölf")]
    assert list(corpus.pairs("test")) == [("three", "drei")]
    turned = open_corpus(name, "de", "en")
    assert list(turned.pairs("test")) == [("drei", "three")]


def test_lines_end_at_line_feeds_only_and_a_byte_order_mark_is_no_text(
    tmp_path,
):
    odd, mark = "a\u2028b\u0085c\x0bd\x0ce\u00a0f\rg", "\ufeff"
    source = f"{mark}{odd}\r\n\n second \n".encode()
    target = f"{mark}eins\r\n{mark}zwei\ndrei".encode()
    name = write(tmp_path, {"train.en": source, "train.de": target})
    # The last line needs no end; within a file the mark is a joiner of old.
    pairs = list(open_corpus(name, "en", "de").pairs("train"))
    assert pairs == [(odd, "eins"), ("", f"{mark}zwei"), (" second ", "drei")]


LINE = b"1\n"


@pytest.mark.parametrize(
    "files, languages, name",
    [
        (["train.en", "train.de"], "en fr", "SPLIT.fr"),
        (["train.en.zst", "train.de.zst"], "en de", "unzstd"),
        (None, "en de", "no-folder"),
        # Both would be read from the files of one.
        (None, "de deu", "deu"),
    ],
)
def test_a_folder_without_a_pair_of_files_is_refused(
    tmp_path, files, languages, name
):
    folder = tmp_path / "no-folder"
    if files is not None:
        folder.mkdir()
        write(folder, dict.fromkeys(files, LINE))
    with pytest.raises(config.UserError, match=name):
        open_corpus(str(folder), *languages.split())


@pytest.mark.parametrize(
    "split, message",
    [
        ("unequal", r"3 in .*l\.en and 1 in .*l\.de"),
        ("empty", r"y\.en and .*y\.de"),
        ("half", r"half\.de, plain or gzipped, .*found none"),
        ("packed", r"packed\.de\.gz"),
        ("endless", r"endless\.de\.gz"),
        # "named" is the argument that had the split.
        ("test", "test; .*, whole; .*`named`"),
    ],
)
def test_a_split_nobody_can_read_is_refused_at_once(tmp_path, split, message):
    packed = gzip.compress(b"eins\n" * 1000)
    endless = gzip.compress(b"eins" * 5_000_000 if split == "endless" else b"")
    names = "whole.en whole.de unequal.de half.en packed.en endless.en"
    files = {
        **dict.fromkeys(names.split(), LINE),
        **{"unequal.en": LINE * 3, "empty.en": b"", "empty.de": b""},
        **{"packed.de.gz": packed[: len(packed) // 2]},
        **{"endless.de.gz": endless},
    }
    name = write(tmp_path, files)
    corpus = open_corpus(name, "en", "de")
    with pytest.raises(config.UserError, match=message):
        corpus.pairs(split, "named")
    assert list(corpus.pairs("whole")) == [("1", "1")]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 97])
def test_a_block_may_end_in_a_line_or_a_character(tmp_path, monkeypatch, size):
    monkeypatch.setattr(lines, "BLOCK_BYTES", size)
    path = tmp_path / "text"
    text = "zwölf\n\n“…” 🙂\nfünf"
    path.write_text(text, encoding="utf-8")
    assert list(lines.read_texts(path)) == text.split("\n")
    for end in (b"\xff", b"\xc3", b"\n\xf0\x9f\n"):
        path.write_bytes(text.encode() + end)
        line = 4 + end.startswith(b"\n")
        with pytest.raises(config.UserError, match=f"bytes in line {line} "):
            list(lines.read_texts(path))


@pytest.mark.parametrize(
    "content, message",
    [
        ("one\ntwo\n".encode("utf-16"), "UTF-16"),
        ("one\ntwo\n".encode("utf-16-le"), "zero byte in line 1"),
        (b"one\nt\0wo and so on\n", "zero byte in line 2"),
        (b"one\rtwo\rthree\r", "carriage returns"),
        ("one\n犬です。\n".encode("iso2022_jp"), "ISO-2022-JP in line 2"),
        (lzma.compress(b"one\n"), "unxz"),
        ("zwölf\n".encode("latin-1"), "line 1"),
    ],
)
def test_every_door_for_text_has_the_same_checks(tmp_path, content, message):
    path = tmp_path / "train.en"
    write(tmp_path, {"train.en": content, "train.de": content})

    def verb(*paths):
        with contextlib.ExitStack() as stack:
            flags = "--input", "--prefixes"
            one, other = zip(paths, flags, strict=True)
            text_streams.open_pairs(*one, *other, stack)

    for door in (
        lambda: text_streams.open_input(path, contextlib.ExitStack(), "FILE"),
        lambda: verb(path, path),
        lambda: read_symbols(path),
        lambda: open_corpus(str(tmp_path), "en", "de").pairs("train"),
    ):
        with pytest.raises(config.UserError, match=message):
            door()


def test_pairs_in_memory_are_a_corpus():
    pairs = [("one", "eins"), ("two", "zwei")]
    corpus = open_corpus(pairs, "en", "de")
    assert corpus.splits == ("train",)
    assert list(corpus.pairs("train")) == pairs
    assert list(corpus.sentences("train")) == ["one", "eins", "two", "zwei"]
    both = open_corpus({"train": iter(pairs), "val": pairs[1:]}, "en", "de")
    assert list(both.pairs("val")) == pairs[1:]
    assert both.state_of("train") == corpus.state_of("train")
    other = open_corpus([*pairs[:1], ("two", "drei")])
    assert other.state_of("train") != corpus.state_of("train")


def test_an_open_corpus_stays_what_it_is():
    corpus = open_corpus([("one", "un")], "en", "fr")
    assert open_corpus(corpus, "en", "fr") is corpus
    with pytest.raises(config.UserError, match="en and de"):
        open_corpus(corpus)


SOURCES, TARGETS = ["one dog", "two"], ["ein Hund", "灯笼 zwei"]
PAIRS = [*zip(SOURCES, TARGETS, strict=True)]
ROWS = [{"id": 7, "de": target, "en": source} for source, target in PAIRS]


@pytest.mark.parametrize(
    "table",
    [
        iter(PAIRS),
        np.array(PAIRS),
        pandas.DataFrame(PAIRS),
        pandas.DataFrame(ROWS),
        pandas.DataFrame({"德文": TARGETS, "n": 3, "ENGLISH": SOURCES}),
        pandas.DataFrame({"Deutsch": TARGETS, "text": SOURCES}),
        pandas.DataFrame({"target": TARGETS, "n": 3, "source": SOURCES}),
        tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS)),
        tf.data.Dataset.from_tensor_slices({"en": SOURCES, "de": TARGETS}),
        ROWS,
        # As a dataset of Hugging Face has them.
        [{"translation": row} for row in ROWS],
    ],
    ids=lambda table: type(table).__name__,
)
def test_pairs_come_as_people_have_them(table):
    corpus = open_corpus({"train": table}, "en", "de")
    assert list(corpus.pairs("train")) == PAIRS


@pytest.mark.parametrize(
    "pairs, message",
    [
        ([{"en": "one", "fr": "un"}], "place 0 of train"),
        ([("one", "eins"), "tw"], "'tw' in place 1 of train"),
        ([("one", "eins"), None], "None in place 1 of train"),
        ([{"translation": "one"}], "place 0 of train"),
        (tf.data.Dataset.from_tensors((SOURCES, TARGETS)), "`batch`"),
        ({"en": SOURCES, "de": TARGETS}, "`corpus`"),
        (5, "`corpus`"),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(pairs, message):
    with pytest.raises(config.UserError, match=message):
        open_corpus(pairs, "en", "de")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A translation dataset, written by TFDS's own tools."""
    path = tmp_path_factory.mktemp("tfds")
    sides = zip(GERMAN, ENGLISH, strict=True)
    rows = [{"de": german, "en": english} for german, english in sides]
    splits = {"train": rows, "validation": rows[:3]}
    tfds.dataset_builders.store_as_tfds_dataset(
        name="toy_translate",
        version="1.0.0",
        config="de-en",
        features=tfds.features.Translation(("de", "en")),
        # TFDS wants a key with every example.
        split_datasets={
            split: list(enumerate(rows)) for split, rows in splits.items()
        },
        data_dir=path,
    )
    return path


@pytest.fixture
def toy(data_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    return "tfds:toy_translate/de-en"


def test_a_dataset_reads_in_either_direction(toy):
    corpus = open_corpus(toy, "de", "en")
    # TFDS shuffles what it stores, and gives it in one order.
    pairs = list(corpus.pairs("train"))
    assert sorted(pairs) == sorted(zip(GERMAN, ENGLISH, strict=True))
    turned = open_corpus(toy, "en", "de").pairs("train")
    assert [(german, english) for english, german in turned] == pairs
    assert set(corpus.splits) == {"train", "validation"}
    assert len(list(corpus.pairs("val"))) == 3


@pytest.mark.parametrize(
    "name, target", [("no_such_dataset", "de"), ("toy_translate/de-en", "fr")]
)
def test_an_unknown_dataset_or_language_is_one_sentence(toy, name, target):
    with pytest.raises(config.UserError, match=name):
        open_corpus(f"tfds:{name}", "en", target)


def test_a_folder_may_spell_its_languages_in_another_way(tmp_path):
    for split in ("train", "val"):
        sides = {f"{split}.pt-BR": b"um\n", f"{split}.zh_Hans": b"a\n"}
        write(tmp_path, sides)
    corpus = open_corpus(str(tmp_path), "pt_br", "zh-hans")
    assert list(corpus.pairs("train")) == [("um", "a")]
    assert (corpus.source_lang, corpus.target_lang) == ("pt_br", "zh-hans")
    corpus = open_corpus(str(tmp_path), "pt", "zh")
    assert list(corpus.pairs("train")) == [("um", "a")]
    for sides in ("pt", "zh-Hant"), ("pt", "pt_PT"), ("pt_PT", "zh"):
        with pytest.raises(config.UserError, match="SPLIT.pt"):
            open_corpus(str(tmp_path), *sides)
    # As FLORES has them.
    write(tmp_path, {"dev.eng_Latn": b"one\n", "dev.deu_Latn": b"eins\n"})
    assert list(open_corpus(str(tmp_path)).pairs("dev")) == [("one", "eins")]
    write(tmp_path, {"dev.fr": b"un\n", "dev.es": b"uno\n"})  # Of any country.
    corpus = open_corpus(str(tmp_path), "fr_CA", "es-419")
    assert list(corpus.pairs("dev")) == [("un", "uno")]


def test_a_code_that_could_leave_its_folder_is_refused(tmp_path):
    with pytest.raises(config.UserError, match="code of a language"):
        open_corpus(str(tmp_path), "en", "..")
    with pytest.raises(config.UserError, match="code of a language"):
        RunConfig.from_preset("tiny", corpus="demo", target_lang="..")
