"""Preparing a run: nothing is done twice, and no change goes unnoticed."""

import dataclasses
import logging
import os
import shutil
from unittest import mock

import numpy as np
import pytest
from sample_runs import TINY, make_run
from waiting import until
from warned import warnings_of

from keras_transformer.config import TrainingConfig, UserError
from keras_transformer.data import records
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs import layout
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import preparation
from keras_transformer.training.display import heartbeat
from keras_transformer.training.request import (
    Session,
    session_of_begun,
    understand,
)

MODEL = dataclasses.replace(TINY, vocab_size=293)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, count in (("train", 97), ("val", 11)):
        for language, words in (("en", "two dogs"), ("de", "zwei Hunde")):
            lines = [f"{words} {i % 13} .\n" for i in range(count)]
            (folder / f"{split}.{language}").write_text("".join(lines))
    return folder


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


def prepare(folder, run_dir, model=MODEL, **more):
    """Prepare as a training does before it has a model."""
    recipe = TrainingConfig(**more.pop("recipe", {}))
    run = make_run(model, recipe, corpus=str(folder), **more)
    asked = Session(run_dir=run_dir, run=run)
    preparation.check_beginning(asked)
    if layout.has_begun(run_dir):
        asked = session_of_begun(RunConfig.load(run_dir), asked)
    prepared = preparation.prepare(asked)
    # A step was taken: what was prepared binds who goes on.
    step = run_dir / "checkpoints" / "step-000000001"
    step.mkdir(parents=True, exist_ok=True)
    return prepared


def test_a_run_reads_what_only_its_targets_have_generously(folder, run_dir):
    for language, quoted in ("en", '"two"'), ("de", "„zwei“"):
        text = f"{quoted} 3 .\n{quoted} 5 .\n" * 17
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    tokenizer = prepare(folder, run_dir).tokenizer
    pasted, meant = tokenizer.tokenize(["“two“ 3", '"two" 3']).to_list()
    assert pasted == meant


@pytest.mark.parametrize("share", [None, 0.2])
def test_a_run_once_begun_needs_no_text(folder, run_dir, share, caplog):
    if share:
        for language in ("en", "de"):
            (folder / f"val.{language}").unlink()
    recipe = {"validation_share": share}
    first = prepare(folder, run_dir, recipe=recipe)
    shutil.rmtree(folder)
    again = prepare(folder, run_dir, recipe=recipe)
    assert again.run == first.run and len(again.plan) == len(first.plan)
    assert again.watched == first.watched
    assert share or ("two dogs 5 .", "zwei Hunde 5 .") in first.watched
    assert warnings_of(folder, caplog) == 0


@pytest.mark.parametrize("change", ["size", "time", "neither"])
def test_a_changed_text_gets_one_warning(folder, run_dir, change, caplog):
    run = prepare(folder, run_dir).run
    path = folder / "val.de"
    if change == "size":
        path.write_text(path.read_text() + "drei Hunde\n")
    elif change == "time":
        os.utime(path, (0, 0))
    caplog.clear()
    assert prepare(folder, run_dir).run == run
    assert warnings_of(folder, caplog) == (change != "neither")


@pytest.mark.parametrize(
    "changed", ["A + B:0.5", "A + B:<bt>", "demo + B", "B + demo", "A"]
)
def test_a_mixture_that_has_changed_is_told_and_the_old_name_kept(
    folder, run_dir, caplog, changed
):
    # Of the same text: no size and no time tells them apart.
    names = {"A": str(folder), "B": str(folder)}
    begun_with = " + ".join(names.values())
    if "demo" in changed:
        begun_with = f"demo + {folder}:2"
    prepare(folder, run_dir)
    begun = RunConfig.load(run_dir)
    text = open_corpus(begun_with).state_of("train", "val")
    dataclasses.replace(begun, corpus=begun_with, text=text).save(run_dir)
    for name, path in names.items():
        changed = changed.replace(name, path)
    assert understand(run_dir=run_dir, corpus=begun_with).corpus is None
    assert warnings_of(folder, caplog) == 0
    session = understand(run_dir=run_dir, corpus=changed)
    assert session.run.corpus == begun_with and session.corpus is None
    assert warnings_of(changed, caplog) == 1


def test_another_order_of_data_is_told(folder, run_dir, monkeypatch, caplog):
    how = {"recipe": {"batch_tokens": 97}}
    run = prepare(folder, run_dir, **how).run
    assert prepare(folder, run_dir, **how).run.plan == run.plan
    assert "other batches" not in caplog.text
    monkeypatch.setattr(  # As another NumPy's might.
        BatchPlan, "_order", lambda self, _: np.arange(len(self))
    )
    assert prepare(folder, run_dir, **how).run.plan != run.plan
    (said,) = [x for x in caplog.messages if "other batches" in x]
    assert str(run_dir) in said


def test_damaged_records_are_made_again_from_the_text(folder, run_dir, caplog):
    prepare(folder, run_dir)
    path = run_dir / "records" / "train" / "source.ids"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    prepare(folder, run_dir)
    assert path.read_bytes() == whole
    assert "Making token records again: Expected token rec" in caplog.text
    watched = run_dir / "records" / "watched.json"
    chosen = watched.read_text()
    watched.write_text("{")
    prepare(folder, run_dir)
    assert watched.read_text() == chosen


def test_what_to_clean_is_told_once(folder, run_dir, caplog):
    prepare(folder, run_dir)
    # 97 pairs, of which 13 differ.
    assert caplog.text.count("Of 97 training pairs 84 repeated (86.6 %)") == 1


def test_a_text_moved_and_then_changed_is_told(folder, run_dir, caplog):
    prepare(folder, run_dir)
    moved = folder.rename(folder.with_name("moved"))
    preparation.prepare(understand(run_dir=run_dir, corpus=moved))
    assert RunConfig.load(run_dir).corpus == str(moved)
    assert warnings_of(moved, caplog) == 0
    (moved / "val.de").write_text("another\n" * 11)
    understand(run_dir=run_dir)
    assert warnings_of(moved, caplog) == 1


def test_a_bad_byte_is_found_before_anything_is_made(folder, run_dir):
    (folder / "val.de").write_bytes("zwölf\n".encode("latin-1") * 11)
    with pytest.raises(UserError, match="val.de, .* line 1"):
        prepare(folder, run_dir)
    assert not run_dir.exists()


def test_a_refusal_keeps_the_users_own_files(folder, run_dir, monkeypatch):
    train = Tokenizer.train

    def train_while_somebody_writes(sentences, size, path, *how, **named):
        (run_dir / "thesis").mkdir()
        (run_dir / "thesis" / "text").write_text("years of work")
        return train(sentences, size, path, *how, **named)

    refused = pytest.raises(UserError, match="at most 2 tokens")
    with monkeypatch.context() as patch, refused:
        patch.setattr(Tokenizer, "train", train_while_somebody_writes)
        prepare(folder, run_dir, recipe={"max_length": 2})
    prepare(folder, run_dir)
    assert (run_dir / "thesis" / "text").read_text() == "years of work"


def test_a_killed_preparation_is_made_again(folder, run_dir, monkeypatch):
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(records.TokenisedCorpus, "build", interrupt)
        prepare(folder, run_dir)
    model = dataclasses.replace(MODEL, vocab_size=283)
    prepare(folder, run_dir, model)
    saved = RunConfig.load(run_dir)
    tokenizer = Tokenizer.load(run_dir / "tokenizer.model")
    assert saved.model.vocab_size == tokenizer.vocab_size


LLAMA = '{"model_type": "llama"}'


@pytest.mark.parametrize(
    "names", [["config.json", "tokenizer.model"], ["tokenizer.model"]]
)
def test_a_folder_of_another_program_is_left_as_it_is(folder, run_dir, names):
    run_dir.mkdir()
    for name in names:
        (run_dir / name).write_text(LLAMA)
    with pytest.raises(UserError, match="config"):
        prepare(folder, run_dir)
    found = {path.name: path.read_text() for path in run_dir.iterdir()}
    assert found == dict.fromkeys(names, LLAMA)


def test_long_work_gives_a_sign_of_life(caplog):
    caplog.set_level(logging.INFO, "keras_transformer")
    with heartbeat("Waiting", seconds=0.01):
        until(lambda: caplog.messages)
    count = len(caplog.messages)
    assert caplog.messages[0].startswith("Waiting: ")
    with heartbeat("Nothing", seconds=1000):
        pass
    assert len(caplog.messages) == count


def test_a_machine_that_differs_from_the_last_sessions_is_told(
    folder, run_dir, caplog
):
    caplog.set_level(logging.INFO, "keras_transformer")
    prepare(folder, run_dir)
    asked = understand(run_dir=run_dir, minutes=7)
    for _ in range(2):  # It is what the run has now.
        preparation.prepare(asked)
        asked = understand(run_dir=run_dir, minutes=7)
    (said,) = (x for x in caplog.messages if "last session" in x)
    assert "`minutes` no limit, this one has 7" in said
