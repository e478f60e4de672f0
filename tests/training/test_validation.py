"""What a validation reads, and which weights the last one keeps."""

import dataclasses
import logging
from unittest import mock

import pytest
import tensorflow as tf
from natural_corpus import corpus as corpus_of
from sample_runs import (
    TINY,
    digit_arguments,
    make_run,
    make_tiny_model,
    train_on_digits,
    write_tiny_run,
)

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, TrainingConfig
from keras_transformer.runs.averaging import AVERAGE, final_result
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import validation
from keras_transformer.training.building import Training
from keras_transformer.training.request import Session
from keras_transformer.training.validation import validation_batches
from keras_transformer.translation import evaluation


def test_long_pairs_are_cut_on_both_sides_and_named(caplog, monkeypatch):
    # Every token but the last is 11 more than the number of its pair.
    pairs = corpus_of([5, 13, 4, 8, 7], [6, 3, 71, 63, 61])

    run = make_run(TINY, TrainingConfig(batch_tokens=128))
    monkeypatch.setattr(RunConfig, "longest_source", 11)
    batches = validation_batches(pairs, run)

    found = {}
    for (source, target_in), target in batches.as_numpy_iterator():
        assert source.shape[1] <= 11 and target.shape[1] <= 61
        for ids, before, after in zip(source, target_in, target, strict=True):
            if not ids.any():
                assert not before.any() and not after.any()
                continue
            rows = [x[x != PAD_ID].tolist() for x in (ids, before, after)]
            found[ids[0] - 11] = rows
    # Sources of at most 11 tokens, targets of at most 50 more.
    lengths = {0: (5, 6), 1: (11, 3), 2: (4, 61), 3: (8, 61), 4: (7, 61)}
    assert found == {
        row: [
            [11 + row] * (source - 1) + [EOS_ID],
            [BOS_ID] + [11 + row] * (target - 1),
            [11 + row] * (target - 1) + [EOS_ID],
        ]
        for row, (source, target) in lengths.items()
    }
    (said,) = caplog.messages
    assert said.startswith("val: 3 of 5") and said.endswith("line 2, 3, 4.")


def test_a_validation_that_fails_does_not_end_the_training(
    corpus, tmp_path, caplog, monkeypatch
):
    full = tf.errors.ResourceExhaustedError(None, None, "out of memory")
    fail = mock.Mock(side_effect=full)
    monkeypatch.setattr(validation.Translator, "search_texts", fail)
    caplog.set_level(logging.INFO)
    rhythm = ("--steps", "3", "--validation-steps", "2", "--warmup-steps", "5")
    assert train_on_digits(*digit_arguments(corpus, tmp_path, *rhythm)) == 0
    assert "step 2  could not be validated" in caplog.text
    assert "final.weights.h5, the last checkpoint" in caplog.text
    assert final_result(tmp_path).better == AVERAGE


@pytest.fixture
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
    return final_result(run_dir)


@pytest.mark.usefixtures("no_translator")
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


@pytest.mark.usefixtures("no_translator")
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
