"""Text translated back: `kt.backtranslate` and `backtranslate`."""

import dataclasses
import functools
import gzip
import shutil

import numpy as np
import pytest
import sample_runs
from translated_chunks import count_in_chunks, killed_after_a_chunk, read

import keras_transformer as kt
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.weights import Weights


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return sample_runs.write_digits(folder, train=53, val=7, more=41)


@pytest.fixture(scope="module")
def reverse():
    """A run of German to English, by its own words."""
    run = kt.Run(sample_runs.digit_run("de", "en"))
    run.translator = functools.cache(run.translator)  # So that it traces once.
    return run


translated = pytest.fixture(autouse=True)(count_in_chunks)


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
        tmp_path / "run",
        corpus=[corpus, f"{folder}:0.5:<bt>"],
        preset="tiny",
        **dict(num_layers=1, d_model=22, num_heads=2, ffn_dim=17),
        **dict(steps=2, batch_tokens=64),
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

    with killed_after_a_chunk(monkeypatch):
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


def killed(*_, **__):
    raise KeyboardInterrupt


class AtOnce:
    weights = Weights()

    def search_texts(self, texts, *_, **__):
        found = [[kt.Hypothesis(text.upper(), 0.0)] for text in texts]
        return found, [False] * len(texts)


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


def test_half_a_surrogate_pair_leaves_a_corpus_to_read(
    small_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(kt.Run, "translator", lambda _: AtOnce())
    texts = (text for text in ["two dogs", "\ud800 dog"])
    folder = kt.backtranslate(small_run, texts, tmp_path / "back")
    pairs = list(kt.open_corpus(folder).pairs("train"))
    assert pairs == [("two dogs", "TWO DOGS"), ("? dog", "? DOG")]


def test_another_search_begins_its_own_text(small_run, tmp_path, monkeypatch):
    run = shutil.copytree(small_run, tmp_path / "run")
    monkeypatch.setattr(
        AtOnce, "weights", property(lambda _: kt.Run(run).chosen())
    )
    monkeypatch.setattr(kt.Run, "translator", lambda _: AtOnce())
    config, folder = RunConfig.load(run), tmp_path / "back"
    kt.backtranslate(run, TEXTS, folder)
    kt.backtranslate(run, TEXTS, folder)
    search = dataclasses.replace(config.search, beam_size=3)
    dataclasses.replace(config, search=search).save(run)
    with pytest.raises(kt.UserError, match="choose another place"):
        kt.backtranslate(run, TEXTS, folder)


def test_a_kill_before_the_first_translation_leaves_a_free_place(
    small_run, tmp_path, monkeypatch
):
    folder = tmp_path / "back"
    monkeypatch.setattr(kt.Run, "translator", lambda _: AtOnce())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(AtOnce, "search_texts", killed)
        kt.backtranslate(small_run, ["one"], folder)
    assert not [*tmp_path.iterdir()]
    kt.backtranslate(small_run, ["a"], folder)
    assert read(folder, "train.en") == ["a"]
    assert read(folder, "train.de") == ["A"]
    assert [path.name for path in tmp_path.iterdir()] == ["back"]
