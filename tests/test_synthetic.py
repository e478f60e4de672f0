"""Folders of translations: which pairs they hold, and what they are made of."""

import dataclasses
import shutil

import pytest

import keras_transformer as kt
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.weights import Weights


def killed(*_, **__):
    raise KeyboardInterrupt


class AtOnce:
    weights = Weights()

    def search_texts(self, texts, *_, **__):
        found = [[kt.Hypothesis(text.upper(), 0.0)] for text in texts]
        return found, [False] * len(texts)


TEXTS = ["two dogs", "", "dogs " * 29, "a small dog"]


def read(folder, name):
    return (folder / name).read_text("utf-8").splitlines()


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


def test_a_zero_byte_or_half_a_surrogate_pair_leaves_a_corpus_to_read(
    small_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(kt.Run, "translator", lambda _: AtOnce())
    texts = (text for text in ["two\0dogs", "\ud800 dog"])
    folder = kt.backtranslate(small_run, texts, tmp_path / "back")
    pairs = list(kt.open_corpus(folder).pairs("train"))
    assert pairs == [("two dogs", "TWO DOGS"), ("? dog", "? DOG")]


def test_translations_of_another_search_are_not_taken_up(
    small_run, tmp_path, monkeypatch
):
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
    with pytest.raises(kt.UserError, match="beam_size"):
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
