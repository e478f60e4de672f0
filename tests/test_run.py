"""The one way in from Python: `kt.train` and `kt.Run`."""

import json
import shutil

import keras
import matplotlib.figure
import numpy as np
import pytest
import tensorflow as tf
import toy_trainings
from toy_trainings import pairs_of

import keras_transformer as kt
from keras_transformer.config import JobError, UserError
from keras_transformer.exporting import saved_model
from keras_transformer.runs import averaging, checkpoints
from keras_transformer.runs.averaging import final_result
from keras_transformer.training.request import understand

SETTINGS = dict(
    **toy_trainings.SETTINGS, checkpoint_every="2", validation_steps=100
)


def train(run_dir, corpus, **more):
    settings = {**SETTINGS, "steps": 11, **more}
    return kt.train(run_dir, corpus=corpus, **settings)


class Count(keras.callbacks.Callback):
    """Counts what Keras calls it for."""

    def __init__(self):
        super().__init__()
        self.batches = self.ends = 0

    def on_train_batch_end(self, batch, logs=None):
        assert logs["loss"] > 0
        self.batches += 1

    def on_train_end(self, logs=None):
        self.ends += 1


@pytest.fixture(scope="module")
def in_memory(corpus):
    """The toy corpus as a dictionary of lists."""
    return {name: pairs_of(corpus, name) for name in ("train", "val", "test")}


@pytest.fixture(scope="module")
def count():
    return Count()


@pytest.fixture(scope="module")
def run(in_memory, count, tmp_path_factory):
    """A whole training from Python."""
    run_dir = tmp_path_factory.mktemp("runs") / "a<b>"
    return train(run_dir, in_memory, callbacks=[count])


def digest(folder):
    """The content of every file of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def weights_of(run, average=None):
    return averaging.load(run.path, average=average)[0].get_weights()


def test_a_training_from_python_is_a_run(run, count):
    assert isinstance(run, kt.Run)
    assert (count.batches, count.ends) == (11, 1)
    config = run.config
    assert config.corpus == "memory"
    assert (config.model.num_layers, config.model.d_model) == (1, 14)
    # Not the preset's 32: d_model / num_heads.
    assert (config.model.key_dim, config.model.value_dim) == (7, 7)
    rows = run.history()
    # A slow machine may have more lines between them.
    assert (rows[0]["step"], rows[-1]["step"]) == (1, 11)
    assert {"loss", "validation_loss", "validation_bleu"} <= set(rows[-1])
    assert isinstance(run.plot(), matplotlib.figure.Figure)


def test_the_same_call_again_does_nothing(run, in_memory):
    def written():  # An equal file in the place of another is a change.
        stats = {p: p.stat() for p in run.path.rglob("*") if p.is_file()}
        return {p: (x.st_ino, x.st_mtime_ns) for p, x in stats.items()}

    count, before = Count(), written()
    again = train(run.path, in_memory, callbacks=[count])
    assert again.path == run.path and count.batches == 0
    assert written() == before


def test_the_same_call_again_mends_final_weights_and_makes_no_shorter_average(
    run, in_memory, tmp_path
):
    moved = shutil.copytree(run.path, tmp_path / "run")
    for path in checkpoints.list_checkpoints(moved)[:2]:  # Of six.
        shutil.rmtree(path)
    final = moved / "final.weights.h5"
    before = final.stat().st_mtime_ns
    train(moved, in_memory)
    assert final.stat().st_mtime_ns == before
    final.write_bytes(final.read_bytes()[:-1])
    shutil.rmtree(moved / "checkpoints")
    shutil.copytree(run.path / "checkpoints", moved / "checkpoints")
    train(moved, in_memory)
    np.testing.assert_equal(weights_of(kt.Run(moved)), weights_of(run))


def test_an_iterator_is_read_once_whatever_is_left_to_the_text():
    pairs = [("one", "eins"), ("two", "zwei")]
    corpus = {"train": iter(pairs), "val": iter(pairs[:1])}
    asked = understand(corpus=corpus)  # As `train` and `dry_run` do.
    assert asked.run.preset == "tiny"
    assert list(asked.text.pairs("train")) == pairs
    table = np.array(pairs * 50)  # Which is neither true nor false.
    assert understand(corpus=table).run.preset == "tiny"
    asked = understand(corpus=iter(pairs * 50), validation_share=0.5)
    assert list(asked.text.pairs("train"))


@pytest.mark.stands_for("reports of the weights in use")
def test_reports_and_cards_name_the_weights_that_were_loaded(
    small_run, tmp_path, monkeypatch
):
    run = kt.Run(shutil.copytree(small_run, tmp_path / "run"))
    model = averaging.load(run.path)[0]
    model.compile("sgd", "mse")
    load, steps = kt.Run.translator, iter([11, 13, 17, 19])

    def while_it_trains(*args, **kwargs):
        save = checkpoints.save_checkpoint
        save(run.path, model, checkpoints.Progress(next(steps)))
        translator = load(*args, **kwargs)
        save(run.path, model, checkpoints.Progress(next(steps)))
        return translator

    def export(*_, card, **how):
        return card.weights

    monkeypatch.setattr(kt.Run, "translator", while_it_trains)
    monkeypatch.setattr(saved_model, "export", export)
    run.evaluate(corpus={"test": [("a small dog", "ein Hund")]}, beam_size=1)
    folder = run.path / "evaluation" / "memory.test"
    report = json.loads((folder / "scores.json").read_text())
    names = [f"step-0000000{step:02}" for step in (7, 11, 13, 17)]
    assert report["checkpoints"] == names[:2]
    assert run.export(tmp_path / "exported").split()[:-1] == names


@pytest.mark.slow
def test_more_steps_go_on_where_it_ended(run, in_memory, tmp_path):
    shutil.copytree(run.path, tmp_path / "longer")
    count = Count()
    longer = train(tmp_path / "longer", in_memory, steps=13, callbacks=[count])
    assert count.batches == 2
    whole = train(tmp_path / "whole", in_memory, steps=13)
    np.testing.assert_equal(weights_of(longer, 1), weights_of(whole, 1))


@pytest.mark.slow
def test_a_validation_is_not_in_the_loss_of_later_steps(in_memory, tmp_path):
    rows = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: rows.append(dict(logs))
    )
    settings = dict(steps=5, validation_steps=3, callbacks=[note])
    train(tmp_path / "run", in_memory, **settings)
    for steps in rows[:3], rows[3:]:
        losses, tokens = zip(
            *((x["batch_loss"], x["tokens"]) for x in steps), strict=True
        )
        mean = np.average(losses, weights=tokens)
        np.testing.assert_allclose(steps[-1]["loss"], mean, rtol=1e-5)


def test_what_makes_no_training_is_one_sentence(run, in_memory, tmp_path):
    for given, named in (
        (dict(dropuot=0.2), "dropout"),
        (dict(init_from=run.path, d_model=16), "`d_model`"),
    ):
        with pytest.raises(UserError, match=named):
            kt.train(tmp_path / "run", corpus=in_memory, **given)
        assert not (tmp_path / "run").exists()
    # A later process has the corpus no more.
    with pytest.raises(UserError, match="corpus="):
        kt.Run(run.path).evaluate("test")


@pytest.mark.stands_for("runs that translate, evaluate and export")
def test_a_run_translates_evaluates_and_exports(
    run, in_memory, tmp_path, one_signature, caplog
):
    texts = ["one two", ""]
    translations = run.translator().translate(texts)
    assert len(translations) == 2 and translations[1] == ""
    # On the corpus that it was trained on.
    result = run.evaluate("test", beam_size=1)
    assert len(result.translations) == len(in_memory["test"])
    assert "|tok:13a|" in result.bleu.signature
    assert result.folder == run.path / "evaluation" / "test"
    assert (result.folder / "scores.json").exists()
    assert "flatter" not in caplog.text
    trained_on = {source for source, _ in in_memory["train"]}
    shared = sum(source in trained_on for source, _ in in_memory["test"])
    said = f"{shared} of {len(in_memory['test'])} sources of test are in"
    assert shared and said in caplog.text
    run.evaluate("val", beam_size=1)
    assert "has chosen its weights on val" in caplog.text
    path = run.export(tmp_path / "exported" / "mine")
    served = tf.saved_model.load(path).signatures["serving_default"]
    answer = served(text=tf.constant(texts[:1]))["translation"].numpy()[0]
    assert answer.decode() == translations[0]


def test_the_better_weights_are_kept_and_taken(run, caplog):
    result = final_result(run.path)
    losses = {name: x["loss"] for name, x in result.validation.items()}
    assert set(losses) == {"average", "last"}
    # After eleven updates every one helps: the last weights are better.
    assert result.better == "last" and losses["last"] < losses["average"]
    assert result.checkpoints == ("step-000000011",)
    with caplog.at_level("INFO", "keras_transformer"):
        model = averaging.load(run.path)[0]
    (said,) = caplog.messages
    assert "last weights" in said
    found = model.get_weights()
    np.testing.assert_equal(found, weights_of(run, average=1))
    for last, other in zip(found, weights_of(run, average=5), strict=True):
        assert not np.array_equal(last, other)


def test_a_finished_run_can_be_slimmed(run, in_memory, tmp_path, caplog):
    slim = tmp_path / "elsewhere"
    slim.mkdir()
    for name in ("config.json", "tokenizer.model", "final.weights.h5"):
        shutil.copy(run.path / name, slim)
    np.testing.assert_equal(weights_of(kt.Run(slim)), weights_of(run))
    with pytest.raises(UserError, match="`average`"):
        kt.Run(slim).translator(average=2)
    # Training again would begin at nothing, and end with worse weights.
    shutil.copy(run.path / "result.json", slim)
    before = digest(slim)
    with caplog.at_level("INFO", "keras_transformer"):
        train(slim, in_memory)
    assert "no checkpoints" in caplog.text and "`init_from`" in caplog.text
    with pytest.raises(UserError, match="no checkpoints"):
        train(slim, in_memory, steps=12)
    assert digest(slim) == before


def test_checkpoints_stand_in_for_a_result_that_cannot_be_read(
    run, tmp_path, caplog
):
    damaged = shutil.copytree(run.path, tmp_path / "damaged")
    (damaged / "result.json").write_text("{")
    found, expected = weights_of(kt.Run(damaged)), weights_of(run, average=5)
    np.testing.assert_equal(found, expected)
    assert any("result.json" in said for said in caplog.messages)


def tune(run_dir, source, **more):
    # So that an update changes next to nothing.
    how = dict(batch_tokens=257, learning_rate_scale=1e-4, **more)
    return kt.train(run_dir, init_from=source, **how)


@pytest.fixture(scope="module")
def tuned(run, in_memory, tmp_path_factory):
    """A run that began with the weights of another, which then moved."""
    folder = tmp_path_factory.mktemp("tuned")
    source = shutil.copytree(run.path, folder / "source")
    tuned = tune(folder / "tuned", source, corpus=in_memory, steps=1)
    source.rename(folder / "moved")
    return tuned


def test_a_run_may_begin_with_the_weights_of_another(run, tuned):
    source = tuned.path.parent / "source"
    assert digest(source.with_name("moved")) == digest(run.path)
    assert tuned.config.preset == "demo"
    assert tuned.config.model == run.config.model
    assert tuned.config.initial["run_dir"] == str(source.resolve())
    assert tuned.config.initial["checkpoints"] == ["step-000000011"]
    words = [x.path / "tokenizer.model" for x in (run, tuned)]
    assert words[0].read_bytes() == words[1].read_bytes()
    for one, other in zip(weights_of(run), weights_of(tuned), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_a_run_needs_what_it_began_with_no_more(tuned, in_memory, tmp_path):
    again = shutil.copytree(tuned.path, tmp_path / "tuned")
    settings = dict(corpus=in_memory, steps=2)
    source = tuned.path.parent / "source"
    tune(again, source, **settings)
    assert kt.Run(again).history()[-1]["step"] == 2
    kt.train(again)
    with pytest.raises(UserError, match="init_from"):
        tune(again, again, **settings)


class StopEarly(keras.callbacks.Callback):
    """Stops as a button does that is pressed between two updates."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.stop_training = batch == 2


@pytest.mark.slow
def test_a_callback_may_end_a_training(in_memory, tmp_path, caplog):
    with caplog.at_level("INFO", "keras_transformer"):
        run = train(tmp_path / "my run", in_memory, callbacks=[StopEarly()])
    assert "worker" not in caplog.text
    assert final_result(run.path).step == 3


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["on_train_batch_end", "on_train_end"])
def test_a_run_that_was_begun_anew_gets_nothing_of_the_old_one(
    run, in_memory, tmp_path, moment
):
    path = tmp_path / "run"

    def begin_anew(batch=4, logs=None):
        """As another process may do beside a training."""
        if batch == 4 or moment == "on_train_end":
            shutil.rmtree(path)
            shutil.copytree(run.path, path)
            (path / "training.lock").write_text("{}")

    other = keras.callbacks.LambdaCallback(**{moment: begin_anew})
    with pytest.raises(JobError, match="no longer belongs to this training"):
        train(path, in_memory, callbacks=[other])
    (path / "training.lock").unlink()
    assert digest(path) == digest(run.path)


@pytest.mark.slow
def test_a_vocabulary_made_elsewhere_is_taken_over(in_memory, tmp_path):
    words = kt.Tokenizer.train(
        ["zero one two", "null eins zwei"], 283, tmp_path / "words.model"
    )
    given = dict(corpus=in_memory, steps=1, **SETTINGS)
    assert given["vocab_size"] != words.vocab_size  # As recipes have it.
    shared = kt.train(
        tmp_path / "run", tokenizer=tmp_path / "words.model", **given
    )
    assert shared.config.model.vocab_size == words.vocab_size
    assert (shared.path / "tokenizer.model").read_bytes() == words.model
    # The same call again, also of a run that is slim, and with other words.
    kt.train(shared.path, tokenizer=words, **given)
    others = kt.Tokenizer.train(
        ["three four", "drei vier"], 283, tmp_path / "others.model"
    )
    with pytest.raises(UserError, match="another vocabulary|vocab_size"):
        kt.train(shared.path, tokenizer=others, **given)
