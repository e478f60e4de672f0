"""Preparing a run: nothing is done twice, and no change goes unnoticed."""

import gzip
import json
import logging
import os
import pathlib
import shutil

import pytest
from sample_runs import make_run

from keras_transformer.config import (
    ModelConfig,
    TrainingConfig,
    UserError,
)
from keras_transformer.data import folders, records
from keras_transformer.data.corpora import open_corpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import preparation
from keras_transformer.training.display import heartbeat
from keras_transformer.training.request import open_text

MODEL = ModelConfig(
    vocab_size=293,
    num_layers=1,
    d_model=8,
    num_heads=2,
    key_dim=4,
    value_dim=4,
    ffn_dim=16,
)


def write_corpus(folder, size=97):
    folder.mkdir()
    for split, count in (("train", size), ("val", 11)):
        for language, words in (("en", "two dogs"), ("de", "zwei Hunde")):
            lines = [f"{words} {i % 13} .\n" for i in range(count)]
            (folder / f"{split}.{language}").write_text("".join(lines))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    # The files of a test are always young.
    monkeypatch.setattr(folders, "CLOCK_TICK_NS", 0)
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run_dir(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that were opened for reading."""
    names = []
    path_open = pathlib.Path.open

    def note(path, *args, **kwargs):
        names.append(pathlib.Path(path).name)
        return path_open(path, *args, **kwargs)

    monkeypatch.setattr(pathlib.Path, "open", note)
    return names


def prepare(folder, run_dir, model=MODEL, symbols=None, share=None):
    """Prepare as a training does before it has a model."""
    recipe = TrainingConfig(validation_share=share)
    run = make_run(model, recipe, corpus=str(folder), symbols=symbols)
    corpus = open_text(run, folder)
    preparation.check_beginning(run, run_dir, corpus)
    run, tokenizer = preparation.prepare_tokenizer(run, run_dir, corpus)
    run, plan, _, sample = preparation.prepare_data(
        run, run_dir, corpus, tokenizer
    )
    run.save(run_dir)
    # A step was taken: what was prepared binds who goes on.
    (run_dir / "checkpoints" / "step-000000001").mkdir(
        parents=True, exist_ok=True
    )
    return run, plan, sample


@pytest.mark.parametrize("share", [None, 0.2])
def test_a_text_that_stayed_alike_is_not_read_again(
    folder, run_dir, opened, share
):
    if share:
        for language in ("en", "de"):
            (folder / f"val.{language}").unlink()
    run, plan, sample = prepare(folder, run_dir, share=share)
    assert {"train.en", "train.de"} <= set(opened)
    opened.clear()
    again, same_plan, same_sample = prepare(folder, run_dir, share=share)
    assert not [name for name in opened if name.endswith((".en", ".de"))]
    assert again == run and len(same_plan) == len(plan)
    assert same_sample == sample
    assert share or ("two dogs 5 .", "zwei Hunde 5 .") in sample


def test_a_text_that_is_elsewhere_now_is_read_and_known(
    folder, run_dir, opened, tmp_path
):
    run, *_ = prepare(folder, run_dir)
    moved = tmp_path / "moved"
    folder.rename(moved)
    packed = moved / "train.en.gz"
    packed.write_bytes(gzip.compress((moved / "train.en").read_bytes()))
    (moved / "train.en").unlink()
    opened.clear()
    again, *_ = prepare(moved, run_dir)
    assert "train.de" in opened
    assert again.fingerprints == run.fingerprints
    opened.clear()
    prepare(moved, run_dir)  # This place is remembered.
    assert "train.de" not in opened


def test_a_text_of_the_same_size_and_time_is_another_text(folder, run_dir):
    prepare(folder, run_dir)
    path = folder / "train.de"
    before = path.stat()
    path.write_text(path.read_text().replace("zwei", "drei", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    notes = (run_dir / "records" / "remembered.json").read_bytes()
    with pytest.raises(UserError, match="The text of the split train in"):
        prepare(folder, run_dir)
    assert (run_dir / "records" / "remembered.json").read_bytes() == notes


def test_a_text_that_was_just_written_is_read_in_any_case(
    folder, run_dir, opened, monkeypatch
):
    monkeypatch.setattr(folders, "CLOCK_TICK_NS", 10**15)
    prepare(folder, run_dir)
    opened.clear()
    prepare(folder, run_dir)
    assert {"train.en", "train.de"} <= set(opened)


def test_what_to_clean_and_a_vocabulary_that_misfits_are_told(
    folder, run_dir, small_run, caplog
):
    prepare(folder, run_dir)
    # 97 pairs, of which 13 differ.
    said = (
        "Of 97 training pairs 84 repeated (86.6 %): look at them, and clean "
        "the text where they are wrong."
    )
    assert caplog.messages.count(said) == 1
    run = make_run(MODEL, initial={"run_dir": str(small_run)})
    chinese = open_corpus([("一二三四五六七", "eins zwei")])
    preparation.prepare_tokenizer(run, run_dir.with_name("other"), chinese)
    assert "tokens a character for the en side, seldom more" in caplog.text


@pytest.mark.parametrize(
    "content",
    # The last knows another fingerprint than the run.
    ["", "{", "[1, 2]", '{"text train": 5}', None],
)
def test_what_is_remembered_may_be_lost_or_broken(
    folder, run_dir, opened, content
):
    run, *_ = prepare(folder, run_dir)
    path = run_dir / "records" / "remembered.json"
    notes = json.loads(path.read_text())
    notes["text train"][1] = notes["text train"][1][:-1] + "x"
    path.write_text(json.dumps(notes) if content is None else content)
    opened.clear()
    assert prepare(folder, run_dir)[0] == run
    assert "train.en" in opened


def test_how_many_pairs_were_held_out_is_said(folder, run_dir, caplog):
    run = make_run(
        MODEL,
        TrainingConfig(validation_share=0.3),
        corpus=str(folder),
        validation_split="dev",
    )
    corpus = open_text(run, str(folder))
    with caplog.at_level(logging.INFO):
        preparation.prepare(run, run_dir, corpus, None)
    held_out = len(list(corpus.pairs("dev")))
    said = f"dev: {held_out} pairs to validate on, held out of train."
    assert 11 < held_out < 53 and said in caplog.messages


def test_a_bad_byte_in_any_split_is_found_before_anything_is_made(
    folder, run_dir
):
    (folder / "val.de").write_bytes("zwölf\n".encode("latin-1") * 11)
    with pytest.raises(UserError, match="val.de, found other bytes in line 1"):
        prepare(folder, run_dir)
    assert not run_dir.exists()


def test_a_refusal_keeps_the_vocabulary_and_the_users_own_files(
    folder, run_dir, monkeypatch
):
    train = Tokenizer.train

    def train_while_somebody_writes(sentences, size, path, *how):
        (run_dir / "thesis").mkdir()
        (run_dir / "thesis" / "text").write_text("years of work")
        return train(sentences, size, path, *how)

    run = make_run(MODEL, TrainingConfig(max_length=2), corpus=str(folder))
    corpus = open_corpus(folder, "en", "de")
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", train_while_somebody_writes)
        with pytest.raises(UserError, match="text and at most 2 tokens"):
            preparation.prepare(run, run_dir, corpus, None)
    assert (run_dir / "thesis" / "text").read_text() == "years of work"
    sizes = trained(monkeypatch)
    prepare(folder, run_dir)
    assert sizes == []


class Killed(BaseException):
    """As if the process ended here."""


def killed_while_tokenising(monkeypatch, folder, run_dir):
    def kill(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(records, "_append", kill)
        with pytest.raises(Killed):
            prepare(folder, run_dir)
    assert not (run_dir / "config.json").exists()


def trained(monkeypatch):
    """The sizes of the vocabularies that are trained from now on."""
    sizes = []
    train = Tokenizer.train.__func__

    def note(cls, sentences, vocab_size, path, *how):
        sizes.append(vocab_size)
        return train(cls, sentences, vocab_size, path, *how)

    monkeypatch.setattr(Tokenizer, "train", classmethod(note))
    return sizes


def test_a_vocabulary_that_is_done_is_not_trained_again(
    folder, run_dir, monkeypatch
):
    killed_while_tokenising(monkeypatch, folder, run_dir)
    vocabulary = (run_dir / "tokenizer.model").read_bytes()
    sizes = trained(monkeypatch)
    prepare(folder, run_dir)
    assert sizes == []
    assert (run_dir / "tokenizer.model").read_bytes() == vocabulary


@pytest.mark.parametrize("change", ["text", "size", "symbols", "file"])
def test_a_vocabulary_made_for_something_else_is_trained_again(
    folder, run_dir, monkeypatch, change
):
    killed_while_tokenising(monkeypatch, folder, run_dir)
    model, symbols = MODEL, None
    if change == "text":
        shutil.rmtree(folder)
        write_corpus(folder, size=101)
    elif change == "size":
        model = ModelConfig(**{**vars(MODEL), "vocab_size": 283})
    elif change == "symbols":
        symbols = ("<2fr>",)
    else:
        other = run_dir.with_name("other.model")
        Tokenizer.train(["one two", "drei vier"] * 5, 271, other)
        shutil.copyfile(other, run_dir / "tokenizer.model")
    sizes = trained(monkeypatch)
    prepare(folder, run_dir, model, symbols=symbols)
    assert sizes == [model.vocab_size]
    saved = RunConfig.load(run_dir)
    tokenizer = Tokenizer.load(run_dir / "tokenizer.model")
    assert saved.model.vocab_size == tokenizer.vocab_size


def test_long_work_gives_a_sign_of_life(caplog):
    caplog.set_level(logging.INFO, "keras_transformer")
    with heartbeat("Waiting", seconds=0.01):
        while not caplog.messages:
            pass
    count = len(caplog.messages)
    assert caplog.messages[0] == "Waiting: 0 s so far."
    with heartbeat("Nothing", seconds=1000):
        pass
    assert len(caplog.messages) == count
