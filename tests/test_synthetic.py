"""Text that models make: `kt.backtranslate` and `kt.distill`."""

import dataclasses
import functools
import gzip
import shutil
import types
from unittest import mock

import numpy as np
import pytest
import sample_runs

import keras_transformer as kt
from keras_transformer.__main__ import main
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation import unfinished
from keras_transformer.translation.display import SentenceDisplay


def read(folder, name):
    return (folder / name).read_text("utf-8").splitlines()


@pytest.fixture(autouse=True)
def translated(monkeypatch):
    """17 texts a chunk; gets how many were translated in each."""
    counts, add = [], unfinished.Unfinished.add

    def counting(self, about, make):
        was_there = add(self, about, make)
        if not was_there:
            counts.append(len(about[-1]))
        return was_there

    monkeypatch.setattr(unfinished, "CHUNK", 17)
    monkeypatch.setattr(unfinished.Unfinished, "add", counting)
    return counts


@functools.cache
def digits(*languages):
    """The run that has learnt digits, which traces once."""
    run = kt.Run(sample_runs.digit_run(*languages))
    run.translator = functools.cache(run.translator)
    return run


@pytest.fixture(scope="module")
def reverse():
    """A run of German to English, by its own words."""
    return digits("de", "en")


@pytest.fixture(scope="module")
def teacher():
    return digits()


@pytest.mark.slow
def test_a_file_becomes_the_target_side_of_a_corpus_to_train_on(
    reverse, corpus, tmp_path
):
    text = read(corpus, "more.de")
    packed = tmp_path / "more.de.gz"
    packed.write_bytes(gzip.compress((corpus / "more.de").read_bytes()))
    folder = kt.backtranslate(reverse, packed, tmp_path / "made" / "back")

    assert folder == tmp_path / "made" / "back"
    assert read(folder, "train.de") == text
    said = reverse.translator().translate(text)
    assert read(folder, "train.en") == said and any(said)
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.en", "train.de", "origin.json"}
    assert [path.name for path in folder.parent.iterdir()] == ["back"]

    run = kt.train(
        tmp_path / "run", corpus=[corpus, f"{folder}:0.5:<bt>"], **TINY
    )
    vocabulary = run.translator().tokenizer
    tag = vocabulary.pieces(range(vocabulary.vocab_size)).index("<bt>")
    records = np.fromfile(run.path / "records/train/source.ids", np.uint16)
    assert (records == tag).sum() == len(text) // 2
    lengths = np.fromfile(run.path / "records/train/source.lengths", np.int32)
    assert len(lengths) == 53 + len(text) // 2
    # The corpus of its run: a test set would come from the first one.
    assert run.evaluate("val").translations


@pytest.mark.slow
def test_a_killed_one_translates_nothing_twice_and_ends_the_same(
    reverse, corpus, tmp_path, monkeypatch, translated
):
    how = dict(sampling=kt.Sampling(seed=5))
    text = corpus / "more.de"
    whole = kt.backtranslate(reverse, text, tmp_path / "a", **how)
    assert translated == [17, 17, 7]
    translated.clear()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt = mock.Mock(side_effect=KeyboardInterrupt)
        patch.setattr(SentenceDisplay, "end_chunk", interrupt)
        kt.backtranslate(reverse, text, tmp_path / "b", **how)
    killed = kt.backtranslate(reverse, text, tmp_path / "b", **how)
    assert translated == [17, 17, 7]
    assert read(killed, "train.en") == read(whole, "train.en")

    translated.clear()
    kt.backtranslate(reverse, text, tmp_path / "b", **how)
    assert not translated


def test_a_folder_of_the_user_is_left_as_it_is(reverse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample_runs.write_digits(tmp_path, train=3)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(kt.UserError, match="choose another place"):
        kt.backtranslate(reverse, ["eins"], ".")
    assert sorted(tmp_path.rglob("*")) == before


def let_runs_say(monkeypatch, answer):
    """Let a function of a text be the translator of every run."""

    def search_texts(texts, *_, **__):
        found = [[kt.Hypothesis(answer(text), 0.0)] for text in texts]
        return found, [False] * len(texts)

    translator = types.SimpleNamespace(search_texts=search_texts)
    monkeypatch.setattr(kt.Run, "translator", lambda _: translator)


TEXTS = ["two dogs", "", "dogs " * 29, "a small dog"]


@pytest.mark.stands_for("corpora that models make")
def test_a_text_that_is_blank_or_cut_has_no_pair(
    small_run, small_translator, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(kt.Run, "translator", lambda *_: small_translator)
    how = dict(beam_size=1, max_source_length=19)
    folder = kt.backtranslate(small_run, TEXTS, tmp_path / "back", **how)
    kept = [TEXTS[0], TEXTS[3]]
    assert read(folder, "train.en") == kept
    assert read(folder, "train.de") == small_translator.translate(kept, **how)
    assert "Left out 2 of 4 texts" in caplog.text


def test_half_a_surrogate_pair_or_a_zero_byte_leaves_a_corpus_to_read(
    small_run, tmp_path, monkeypatch
):
    let_runs_say(monkeypatch, lambda text: text.upper().replace("|", "\0"))
    texts = (text for text in ["two dogs", "\ud800 dog", "a|dog"])
    folder = kt.backtranslate(small_run, texts, tmp_path / "back")
    pairs = list(kt.open_corpus(folder).pairs("train"))
    assert pairs[0] == ("two dogs", "TWO DOGS")
    assert pairs[1:] == [("? dog", "? DOG"), ("a|dog", "A DOG")]


def test_a_model_that_says_nothing_makes_no_corpus(
    small_run, tmp_path, monkeypatch
):
    let_runs_say(monkeypatch, lambda text: "")
    with pytest.raises(kt.UserError, match="longer"):
        kt.backtranslate(small_run, ["two dogs"], tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_another_search_needs_another_place(small_run, tmp_path, monkeypatch):
    run = shutil.copytree(small_run, tmp_path / "run")
    let_runs_say(monkeypatch, str.upper)
    config, folder = RunConfig.load(run), tmp_path / "back"
    kt.backtranslate(run, TEXTS, folder)
    kt.backtranslate(run, TEXTS, folder)
    search = dataclasses.replace(config.search, beam_size=3)
    dataclasses.replace(config, search=search).save(run)
    with pytest.raises(kt.UserError, match="choose another place"):
        kt.backtranslate(run, TEXTS, folder)


# A training of two updates, which is quickly traced.
TINY = dict(
    **dict(preset="tiny", num_layers=1, d_model=22, num_heads=2, ffn_dim=17),
    **dict(steps=2, batch_tokens=64),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Digits whose originals end a word early, which no teacher has learnt."""
    folder = tmp_path_factory.mktemp("corpus")
    sample_runs.write_digits(folder, train=53, val=7, test=5, more=41)
    originals = [line.rsplit(" ", 1)[0] for line in read(folder, "train.de")]
    (folder / "train.de").write_text("\n".join(originals) + "\n", "utf-8")
    return folder


@pytest.mark.stands_for("distillations")
def test_a_student_learns_from_a_teacher(teacher, corpus, tmp_path, translated):
    run = kt.distill(teacher, tmp_path / "student", corpus=corpus, **TINY)

    folder = run.path / "distilled"
    sources = read(corpus, "train.en")
    assert read(folder, "train.en") == sources
    said = teacher.translator().translate(sources)
    assert read(folder, "train.de") == said
    assert said != read(corpus, "train.de") and any(said)
    for name in ("val.en", "val.de", "test.en", "test.de"):
        assert read(folder, name) == read(corpus, name)
    assert run.config.corpus == str(folder)
    vocabulary = (run.path / "tokenizer.model").read_bytes()
    assert vocabulary == (teacher.path / "tokenizer.model").read_bytes()
    assert translated == [17, 17, 17, 2]
    kt.distill(teacher, run.path, corpus=corpus, **TINY)
    assert len(translated) == 4


@pytest.mark.slow
def test_the_verb_takes_several_teachers_and_a_recipe(
    teacher, corpus, tmp_path
):
    student, recipe = tmp_path / "student", tmp_path / "mine.args"
    asked = dict(corpus=corpus, run_dir=student, **TINY)
    flags = [f"--{name.replace('_', '-')} {x}" for name, x in asked.items()]
    recipe.write_text("\n".join(flags))
    teachers = 2 * ["--teacher", str(teacher.path)]
    assert main(["distill", *teachers, f"@{recipe}"]) == 0
    said = teacher.translator().translate(read(corpus, "train.en"))
    assert read(student / "distilled", "train.de") == said


def test_what_cannot_be_distilled_is_one_sentence(teacher, corpus, tmp_path):
    student = tmp_path / "student"
    turned = dict(source_lang="de", target_lang="en")
    with pytest.raises(kt.UserError, match="de to en"):
        kt.distill(teacher, student, corpus=corpus, **TINY, **turned)
    assert not student.exists()
    with pytest.raises(kt.UserError, match="<x>"):
        kt.distill(teacher, student, corpus=[corpus, f"{corpus}:<x>"], **TINY)
    assert not student.exists()
    with pytest.raises(kt.UserError, match="run_dir"):
        kt.distill(teacher, teacher.path, corpus=corpus, **TINY)
