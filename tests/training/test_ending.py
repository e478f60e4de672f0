"""The end of a training: which weights it keeps, and what it says of them."""

import dataclasses

import pytest
from sample_runs import TINY, make_run, make_tiny_model, write_tiny_run

from keras_transformer.runs import averaging
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import validation
from keras_transformer.training.building import Training
from keras_transformer.training.request import Session
from keras_transformer.translation import evaluation


@pytest.fixture(autouse=True)
def no_translator(monkeypatch):
    monkeypatch.setattr(validation, "Translator", lambda *_: None)


def finish(run_dir, found, **recipe):
    """Let validations find figures, by what the log calls the weights."""
    run = RunConfig.load(write_tiny_run(run_dir))
    recipe = dataclasses.replace(run.training, average=3, **recipe)
    run = dataclasses.replace(run, training=recipe)
    run.save(run_dir)
    watched = [("x", "ein Hund und eine Katze")]
    session = Session(run_dir=run_dir, run=run)
    training = Training(session, None, None, watched=watched)
    ending = validation.Validation(training, make_tiny_model(0))
    ending.measure = found.__getitem__
    ending.finish(Progress(3), make_tiny_model(5).get_weights())
    return averaging.final_result(run_dir)


@pytest.mark.parametrize(
    "bleu, better", [((0.0, 0.0), "last"), ((7.0, 5.0), "average")]
)
def test_equal_bleu_lets_the_loss_decide(tmp_path, bleu, better):
    found = {
        "average weights": {"loss": 2.5, "bleu": bleu[0]},
        "last weights": {"loss": 1.5, "bleu": bleu[1]},
    }
    result = finish(tmp_path, found, patience=3, patience_on="bleu")
    assert (result.better, result.by) == (
        *(better, "loss" if bleu[0] == bleu[1] else "bleu"),
    )


@pytest.mark.parametrize(
    "references, is_told",
    [(["rouge", "un chat noir"], True), (["un chat", "a b c d"], False)],
)
def test_references_of_few_words_are_told_of_once(caplog, references, is_told):
    # sacreBLEU's BLEU of a text against itself, which has no 4-gram.
    assert (evaluation.bleu(references, references).value == 0) == is_told
    pairs = [("x", reference) for reference in references]
    session = Session(run=make_run(TINY))
    training = Training(session, None, None, watched=pairs)
    validation.Validation(training, None)
    told = [text for text in caplog.messages if "BLEU is always 0" in text]
    assert len(told) == is_told
