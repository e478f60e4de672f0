"""The card of an export, and when a run is exported again."""

import dataclasses
import json
import shutil

import pytest
from sample_runs import CARD, OPTIONS

import keras_transformer
from keras_transformer.commands.serve import keep_exported
from keras_transformer.config import UserError
from keras_transformer.run import Run
from keras_transformer.runs import checkpoints
from keras_transformer.translation.model_card import CARD_FILE, ModelCard


def test_an_export_has_the_card_and_how_it_searches(exported):
    card = ModelCard.load(exported)
    assert dataclasses.replace(card, search={}, operators=()) == CARD
    assert card.search == dataclasses.asdict(OPTIONS)
    assert card.package_version == keras_transformer.__version__


def test_a_card_of_a_later_version_is_read_and_a_missing_one_is_none(tmp_path):
    assert ModelCard.load(tmp_path) is None
    CARD.save(tmp_path)
    path = tmp_path / CARD_FILE
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "colour": "blue"}))
    assert ModelCard.load(tmp_path) == CARD


@pytest.mark.parametrize("text", ["", "[]", '{"source_lang": "en"}'])
def test_a_broken_card_is_one_sentence(tmp_path, text):
    (tmp_path / CARD_FILE).write_text(text)
    with pytest.raises(UserError, match="export the model again or remove"):
        ModelCard.load(tmp_path)


@pytest.fixture
def run(small_run, tmp_path, monkeypatch):
    """A copy of the run, whose exports are cards alone."""
    shutil.copytree(small_run, tmp_path / "run")

    def export(self, output, version):
        path = output / str(version)
        path.mkdir(parents=True)
        (path / "saved_model.pb").touch()
        search = dataclasses.asdict(self.config.search)
        dataclasses.replace(self.card(), search=search).save(path)
        return path

    monkeypatch.setattr(Run, "export", export)
    return Run(tmp_path / "run")


def save_checkpoint(run, step):
    """Write one with all weights doubled."""
    model = run.translator(1).model
    for weight in model.weights:
        weight.assign(2 * weight)
    model.compile(optimizer="sgd", loss="mse")
    name = f"step-{step:09d}"
    shutil.rmtree(run.path / "checkpoints" / name, ignore_errors=True)
    checkpoints.save_checkpoint(
        run.path, model, checkpoints.Progress(step=step)
    )


def write_evaluation(run, corpus="demo", **how):
    folder = run.path / "evaluation" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    search = dataclasses.asdict(run.config.search)
    search |= {name: how.pop(name) for name in how.keys() & search.keys()}
    score = {"name": "BLEU", "value": 31.7, "signature": "nrefs:1"}
    report = {
        "corpus": corpus,
        "is_own_corpus": True,
        "split": "test",
        "search": search,
        "weights": run.chosen().identity,
        "precision": "float32",
        "scores": {"bleu": score},
        **how,
    }
    (folder / "scores.json").write_text(json.dumps(report))
    return ({"corpus": "demo", "split": "test", **score},)


def test_a_run_is_exported_once_and_again_when_it_changes(run):
    output = run.path / "exported"
    for _ in range(2):
        keep_exported(run, output)
        assert [path.name for path in output.iterdir()] == ["1"]
    card = ModelCard.load(output / "1")
    assert (card.source_lang, card.target_lang) == ("en", "de")
    assert card.parameters == run.translator(1).model.count_params()

    # It is evaluated: the card says so, the weights are as they were.
    scores = write_evaluation(run)
    keep_exported(run, output)
    assert [path.name for path in output.iterdir()] == ["1"]
    assert ModelCard.load(output / "1") == dataclasses.replace(
        card, scores=scores
    )

    # It is trained on: these weights replace the others, and have no scores.
    save_checkpoint(run, 11)
    keep_exported(run, output)
    assert [path.name for path in output.iterdir()] == ["2"]
    assert ModelCard.load(output / "2").scores == ()

    # It says now to search otherwise.
    search = dataclasses.replace(run.config.search, length_penalty=0.3)
    dataclasses.replace(run.config, search=search).save(run.path)
    for _ in range(2):
        keep_exported(Run(run.path), output)
    assert sorted(path.name for path in output.iterdir()) == ["2", "3"]


@pytest.mark.parametrize("name", ["precision", "search", "operators"])
def test_an_export_that_was_made_otherwise_stays_as_it_is(run, name):
    output = run.path / "exported"
    keep_exported(run, output)
    card = ModelCard.load(output / "1")
    search = {**card.search, "min_length": 5}
    made = dict(precision="int8", search=search, operators=("Portable",))
    dataclasses.replace(card, **{name: made[name]}).save(output / "1")
    write_evaluation(run)
    keep_exported(run, output)
    assert bool(ModelCard.load(output / "1").scores) == (name != "precision")

    save_checkpoint(run, 11)
    keep_exported(run, output)
    assert sorted(path.name for path in output.iterdir()) == ["1", "2"]


@pytest.mark.parametrize(
    "beam_size, precision, words",
    [(4, "int8", None), (1, "float32", None), (4, "float32", "some/file.tsv")],
)
def test_a_card_has_the_scores_of_what_computes_as_the_export(
    run, beam_size, precision, words
):
    how = dict(precision=precision, shortlist=words)
    write_evaluation(run, beam_size=beam_size, **how)
    assert run.card().scores == ()
    search = dataclasses.replace(run.config.search, beam_size=beam_size)
    card = Run(run.path, **how).card(search=search)
    assert [score["value"] for score in card.scores] == [31.7]


def test_other_weights_under_the_same_name_are_other_weights(run):
    before = run.card().weights
    assert before.startswith("step-000000007 ")
    save_checkpoint(run, 7)
    after = run.card().weights
    assert after.startswith("step-000000007 ") and after != before


def test_the_scores_of_other_weights_or_texts_are_not_the_cards(run):
    write_evaluation(run)
    assert run.card().scores
    write_evaluation(run, is_own_corpus=False)
    assert not run.card().scores
    write_evaluation(run, weights=run.chosen().identity[:-8] + "0badf00d")
    assert not run.card().scores


def test_only_the_built_in_corpus_gives_examples_away(run):
    card = run.card()
    assert card.subject == "numbers, dates, times and amounts"
    assert "The film starts at 7:08 PM." in card.examples
    # The name alone, which strangers are told, does not make it that corpus.
    changed = dataclasses.replace(run.config, corpus="/home/somebody/demo")
    changed.save(run.path)
    card = Run(run.path).card()
    assert (card.corpus, card.subject, card.examples) == ("demo", "", ())


def test_strangers_are_not_told_where_a_corpus_lies(run):
    folder = "../somebody/my-text/"
    write_evaluation(run, corpus=folder)
    (score,) = run.card().scores
    assert score["corpus"] == "my-text"
