"""Corpora: what is read, in which direction, and what bad input says."""

import gzip
import logging

import pytest
import tensorflow_datasets as tfds

from keras_transformer import config
from keras_transformer.data.corpora import absolute_name, open_corpus
from keras_transformer.data.demo import demo_pairs

GERMAN = [f"Satz {number} für dich" for number in range(7)]
ENGLISH = [f"sentence {number} for you" for number in range(7)]


def write(folder, **files):
    """Write `train_en=b"…"` as `train.en`."""
    for name, content in files.items():
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(content)
    return str(folder)


# Folders.


def test_a_folder_pairs_its_files_line_by_line(tmp_path):
    name = write(
        tmp_path,
        train_en=b"one\ntwo\n",
        train_de="eins\nzwölf\n".encode(),
        test_en=b"three\n",
        test_de=b"drei\n",
    )
    corpus = open_corpus(name, "en", "de")
    assert set(corpus.splits) == {"train", "test"}
    assert list(corpus.pairs("train")) == [("one", "eins"), ("two", "zwölf")]
    assert list(corpus.pairs("test")) == [("three", "drei")]


@pytest.mark.parametrize("plain", [True, False])
def test_numbered_files_are_further_references(tmp_path, plain):
    name = write(
        tmp_path,
        test_en=b"one\ntwo\n",
        **{"test.de_2": b"ein\nzwo\n", "test.de_10": b"1\n2\n"},
    )
    with gzip.open(tmp_path / "test.de.1.gz", "wb") as file:
        file.write(b"eine\nzwee\n")
    write(tmp_path, val_en=b"one\n", val_de=b"eins\n")
    expected = [("eine", "ein", "1"), ("zwee", "zwo", "2")]
    if plain:
        write(tmp_path, test_de=b"eins\nzwei\n")
        expected = [("eins", *expected[0]), ("zwei", *expected[1])]

    corpus = open_corpus(name, "en", "de")

    assert corpus.splits == ("test", "val")
    assert corpus.references("test") == expected
    assert [pair[1] for pair in corpus.pairs("test")] == [
        of_source[0] for of_source in expected
    ]
    assert corpus.references("val") is None
    write(tmp_path, **{"test.de_2": b"ein\n"})
    with pytest.raises(config.UserError, match=r"de.2 as in .*, 2, found 1"):
        corpus.references("test")


def test_a_folder_reads_in_either_direction(tmp_path):
    name = write(tmp_path, train_en=b"one\n", train_de=b"eins\n")
    assert list(open_corpus(name, "de", "en").pairs("train")) == [
        ("eins", "one")
    ]


def test_pairs_can_be_read_again(tmp_path):
    name = write(tmp_path, train_en=b"one\n", train_de=b"eins\n")
    corpus = open_corpus(name, "en", "de")
    assert list(corpus.pairs("train")) == list(corpus.pairs("train"))


def test_lines_end_at_line_feeds_only(tmp_path):
    odd = "a\u2028b\u0085c\x0bd\x0ce\u00a0f\rg"
    name = write(
        tmp_path,
        train_en=f"{odd}\r\n\n second \n".encode(),
        train_de=b"eins\nzwei\ndrei",
    )
    sources = [
        source for source, _ in open_corpus(name, "en", "de").pairs("train")
    ]
    assert sources == [odd, "", " second "]


def test_the_last_line_needs_no_line_end(tmp_path):
    name = write(tmp_path, train_en=b"one\ntwo", train_de=b"eins\nzwei\n")
    pairs = open_corpus(name, "en", "de").pairs("train")
    assert list(pairs) == [("one", "eins"), ("two", "zwei")]


def test_a_split_in_one_language_alone_is_no_split(tmp_path):
    name = write(tmp_path, a_en=b"1\n", a_de=b"1\n", b_en=b"1\n", c_de=b"1\n")
    assert open_corpus(name, "en", "de").splits == ("a",)


def test_unequal_files_are_refused_before_the_first_pair(tmp_path):
    name = write(tmp_path, train_en=b"1\n2\n3\n", train_de=b"1\n2\n")
    corpus = open_corpus(name, "en", "de")
    message = r"found 3 in .*train\.en and 2 in .*train\.de; align them"
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("train")


def test_empty_files_are_refused(tmp_path):
    corpus = open_corpus(
        write(tmp_path, train_en=b"", train_de=b""), "en", "de"
    )
    message = (
        r"sentences in .*train\.en and .*train\.de, found both files empty"
    )
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("train")


def test_text_that_is_not_utf_8_is_refused_with_file_and_line(tmp_path):
    latin = "eins\nzwölf\n".encode("latin-1")
    name = write(tmp_path, train_en=b"one\ntwelve\n", train_de=latin)
    pairs = open_corpus(name, "en", "de").pairs("train")
    assert next(pairs) == ("one", "eins")
    message = r"UTF-8 text in .*train\.de, found other bytes in line 2"
    with pytest.raises(config.UserError, match=message):
        next(pairs)


def test_text_that_was_edited_has_another_fingerprint(tmp_path):
    name = write(tmp_path, train_en=b"one\n", train_de=b"eins\n")
    corpus = open_corpus(name, "en", "de")
    before = corpus.fingerprint("train")
    assert corpus.fingerprint("train") == before
    (tmp_path / "train.de").write_bytes(b"einst\n")
    assert corpus.fingerprint("train") != before


def test_the_fingerprint_is_of_the_text_wherever_it_lies(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        write(folder, train_en=b"one\n", train_de=b"eins\n")
    one, other = (open_corpus(str(x), "en", "de") for x in (here, there))
    assert one.fingerprint("train") == other.fingerprint("train")
    swapped = open_corpus(str(here), "de", "en").fingerprint("train")
    assert swapped != one.fingerprint("train")


def test_a_line_that_moved_to_the_other_file_is_another_text(tmp_path):
    name = write(
        tmp_path, a_en=b"1\n2\n", a_de=b"3\n", b_en=b"1\n", b_de=b"2\n3\n"
    )
    corpus = open_corpus(name, "en", "de")
    assert corpus.fingerprint("a") != corpus.fingerprint("b")


def test_gzipped_files_are_read_and_are_the_same_text(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    write(plain, train_en=b"one\ntwo\n", train_de="eins\nzwölf\n".encode())
    for path in plain.iterdir():
        (packed / f"{path.name}.gz").write_bytes(
            gzip.compress(path.read_bytes())
        )
    (packed / "train.en.gz").unlink()  # One packed side is enough.
    write(packed, train_en=b"one\ntwo\n")
    one, other = (open_corpus(str(x), "en", "de") for x in (plain, packed))
    assert list(other.pairs("train")) == [("one", "eins"), ("two", "zwölf")]
    assert other.fingerprint("train") == one.fingerprint("train")


def test_a_gzipped_file_beside_the_one_that_is_read_is_named(tmp_path, caplog):
    name = write(tmp_path, train_en=b"one\n", train_de=b"eins\n")
    for other in ("train.en.gz", "train.fr.gz", "notes.gz"):
        (tmp_path / other).write_bytes(gzip.compress(b"two\n"))
    (tmp_path / "notes").write_text("")
    corpus = open_corpus(name, "en", "de")
    assert list(corpus.pairs("train")) == [("one", "eins")]
    assert caplog.messages == [
        f"Reading {tmp_path / 'train.en'} and not train.en.gz beside it; "
        "remove or rename one."
    ]


def test_half_a_gzipped_file_is_refused_by_name(tmp_path):
    write(tmp_path, train_en=b"one\n")
    packed = gzip.compress(b"eins\n" * 1000)
    (tmp_path / "train.de.gz").write_bytes(packed[: len(packed) // 2])
    corpus = open_corpus(str(tmp_path), "en", "de")
    with pytest.raises(
        config.UserError, match=r"gzipped text in .*train\.de\.gz"
    ):
        corpus.pairs("train")


def test_the_file_that_a_split_lacks_is_named(tmp_path):
    name = write(tmp_path, train_en=b"1\n", val_en=b"1\n", val_de=b"1\n")
    corpus = open_corpus(name, "en", "de")
    message = r"Expected .*train\.de, plain or gzipped, as the other side"
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("train")
    assert list(corpus.pairs("val")) == [("1", "1")]


def test_a_split_that_is_not_there_names_the_argument(tmp_path):
    name = write(tmp_path, train_en=b"1\n", train_de=b"1\n")
    corpus = open_corpus(name, "en", "de")
    message = r"received test; it has: train; name one of them as `split`\."
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("test", "split")


@pytest.mark.parametrize(
    "content, message",
    [
        ("one\ntwo\n".encode("utf-16"), r"train\.en, found UTF-16; convert"),
        (b"one\rtwo\r", r"train\.en, found carriage returns alone"),
        (b"one\rtwo\rthree\n", r"train\.en, found carriage returns alone"),
        ("one\ntwo\n".encode("utf-16-le"), r"train\.en, found zero bytes"),
    ],
)
def test_what_other_systems_write_is_called_by_its_name(
    tmp_path, content, message
):
    name = write(tmp_path, train_en=content, train_de=b"eins\nzwei\n")
    with pytest.raises(config.UserError, match=message):
        open_corpus(name, "en", "de").pairs("train")


# In memory.


def test_pairs_in_memory_are_a_corpus():
    pairs = [("one", "eins"), ("two", "zwei")]
    corpus = open_corpus(pairs, "en", "de")
    assert corpus.splits == ("train",)
    assert list(corpus.pairs("train")) == pairs
    assert list(corpus.sentences("train")) == ["one", "eins", "two", "zwei"]
    both = open_corpus({"train": iter(pairs), "val": pairs[1:]}, "en", "de")
    assert list(both.pairs("val")) == pairs[1:]
    assert both.fingerprint("train") == corpus.fingerprint("train")
    assert both.fingerprint("val") != corpus.fingerprint("train")


def test_an_open_corpus_stays_what_it_is():
    corpus = open_corpus([("one", "un")], "en", "fr")
    assert open_corpus(corpus, "en", "fr") is corpus
    with pytest.raises(config.UserError, match="en and fr, received en and de"):
        open_corpus(corpus)
    message = "received val; it has: train; pass a dictionary such as"
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("val", "--validation-split")


@pytest.mark.parametrize(
    "pairs, message",
    [
        ([], "received none"),
        ([("one", "eins"), "two"], "received 'two' in place 1 of train"),
        ([("one", None)], "in place 0 of train"),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(pairs, message):
    with pytest.raises(config.UserError, match=message):
        open_corpus(pairs, "en", "de")


def test_a_folder_is_named_so_that_it_is_found_from_anywhere(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert absolute_name("here") == str(tmp_path / "here")
    assert absolute_name("demo") == "demo"
    assert absolute_name("tfds:toy/de-en") == "tfds:toy/de-en"


def test_a_missing_folder_is_refused(tmp_path):
    message = (
        "Expected demo, a folder or tfds:NAME as corpus, received .*nowhere"
    )
    with pytest.raises(config.UserError, match=message):
        open_corpus(str(tmp_path / "nowhere"), "en", "de")


def test_a_missing_language_is_refused_with_what_is_there(tmp_path):
    name = write(tmp_path, train_en=b"1\n", train_de=b"1\n")
    message = (
        r"Expected files SPLIT\.en and SPLIT\.fr in .*, found no such pair; "
        r"this folder has: train\.de, train\.en; name its languages with "
        r"`source_lang` and `target_lang`\."
    )
    with pytest.raises(config.UserError, match=message):
        open_corpus(name, "en", "fr")


def test_an_empty_folder_has_nothing(tmp_path):
    with pytest.raises(config.UserError, match="this folder has: nothing"):
        open_corpus(str(tmp_path), "en", "de")


def test_a_crowded_folder_is_not_listed_in_full(tmp_path):
    write(tmp_path, **{f"split{n:02}_en": b"1\n" for n in range(23)})
    with pytest.raises(config.UserError, match=r"split19\.en, and 3 more; "):
        open_corpus(str(tmp_path), "en", "de")


def test_a_missing_split_is_refused_with_what_is_there(tmp_path):
    name = write(
        tmp_path, train_en=b"1\n", train_de=b"1\n", dev_en=b"1\n", dev_de=b"1\n"
    )
    corpus = open_corpus(name, "en", "de")
    message = "in en and de, received test; it has: dev, train"
    with pytest.raises(config.UserError, match=message):
        corpus.pairs("test")


def test_a_missing_val_is_refused_under_its_own_name(tmp_path):
    name = write(tmp_path, train_en=b"1\n", train_de=b"1\n")
    with pytest.raises(config.UserError, match="received val; it has: train"):
        open_corpus(name, "en", "de").pairs("val")


def test_one_language_twice_is_refused():
    message = "Expected two different languages, received de twice"
    with pytest.raises(config.UserError, match=message):
        open_corpus("demo", "de", "de")


# The built-in corpus.


@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en")])
def test_demo_is_the_built_in_corpus(languages):
    corpus = open_corpus("demo", *languages)
    assert corpus.splits == ("train", "val", "test")
    assert list(corpus.pairs("test")) == demo_pairs("test", *languages)


def test_demo_in_another_language_is_refused():
    with pytest.raises(config.UserError, match="received en and fr"):
        open_corpus("demo", "en", "fr")


# TensorFlow Datasets.


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A translation dataset, written by TFDS's own tools."""
    path = tmp_path_factory.mktemp("tfds")
    rows = [
        {"de": german, "en": english}
        for german, english in zip(GERMAN, ENGLISH, strict=True)
    ]
    splits = {
        "train": rows,
        "validation": rows[:3],
        "broken": [{"de": b"gut", "en": b"b\xffd"}],
    }
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


@pytest.mark.parametrize(
    ("source_lang", "target_lang"), [("en", "de"), ("de", "en")]
)
def test_a_dataset_reads_in_either_direction(toy, source_lang, target_lang):
    corpus = open_corpus(toy, source_lang, target_lang)
    texts = {"en": ENGLISH, "de": GERMAN}
    expected = zip(texts[source_lang], texts[target_lang], strict=True)
    # TFDS shuffles what it stores.
    assert sorted(corpus.pairs("train")) == sorted(expected)
    assert set(corpus.splits) == {"train", "validation", "broken"}


def test_a_dataset_comes_in_the_same_order_again(toy):
    corpus = open_corpus(toy, "en", "de")
    assert list(corpus.pairs("train")) == list(corpus.pairs("train"))


def test_val_finds_the_split_that_tfds_calls_validation(toy):
    corpus = open_corpus(toy, "en", "de")
    assert sorted(corpus.pairs("val")) == list(
        zip(ENGLISH[:3], GERMAN[:3], strict=True)
    )


def test_a_split_that_the_dataset_lacks_is_refused(toy):
    message = "received test; it has: train, validation, broken"
    with pytest.raises(config.UserError, match=message):
        open_corpus(toy, "en", "de").pairs("test")


def test_a_language_that_the_dataset_lacks_is_refused(toy):
    message = "Expected text in en and fr, but the features of .* are: de, en"
    with pytest.raises(config.UserError, match=message):
        open_corpus(toy, "en", "fr")


def test_a_dataset_that_is_not_utf_8_is_refused(toy):
    pairs = open_corpus(toy, "en", "de").pairs("broken")
    message = "UTF-8 text in toy_translate/de-en/1.0.0, .*example 1 of broken"
    with pytest.raises(config.UserError, match=message):
        next(pairs)


@pytest.mark.parametrize("name", ["no_such_dataset", "", "toy_translate/xx"])
def test_an_unknown_dataset_is_refused_in_one_sentence(toy, name, caplog):
    caplog.set_level(logging.INFO)
    message = f"TensorFlow Datasets knows, received {name} .*; check the name"
    with pytest.raises(config.UserError, match=message):
        open_corpus(f"tfds:{name}", "en", "de")
    assert not caplog.messages


class UnreachableTranslate(tfds.core.GeneratorBasedBuilder):
    """A dataset whose download fails."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.Translation(("de", "en"))
        )

    def _split_generators(self, dl_manager):
        raise ConnectionError("the network is down.\nA long trace follows")

    def _generate_examples(self):
        yield from ()


def test_a_failed_download_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(config.UserError) as error:
        open_corpus("tfds:unreachable_translate", "en", "de")
    assert str(error.value) == (
        "Expected TensorFlow Datasets to prepare unreachable_translate, but it "
        "failed (ConnectionError: the network is down); check the connection, "
        "or set TFDS_DATA_DIR to a folder that holds the dataset."
    )
