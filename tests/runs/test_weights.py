"""Which weights are used: how they are asked for, named and reported."""

import pathlib

import pytest

from keras_transformer.config import UserError
from keras_transformer.runs.averaging import Chosen
from keras_transformer.runs.weights import Weights


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(average=0), "`average` to be at least 1, received 0"),
        (dict(precision="float16"), "bfloat16, int8, received 'float16'"),
        (dict(ensemble="runs/a"), "a list of run directories, received 'runs"),
    ],
)
def test_weights_that_make_no_sense_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        Weights(**given)


def test_a_mean_needs_several_models(tmp_path):
    alone = Weights(ensemble_mean="log-probabilities")
    message = "Expected `ensemble` beside `ensemble_mean`"
    with pytest.raises(UserError, match=message):
        alone.runs(tmp_path)


def test_a_report_has_what_was_chosen_and_how_it_is_used():
    steps = ("step-000000003", "step-000000005")
    own = Chosen(steps, 0x2BC)
    alone = Weights(precision="int8", shortlist="words.tsv", chosen=(own,))
    assert alone.identity == "step-000000003 step-000000005 000002bc"
    of_own = dict(precision="int8", checkpoints=[*steps])
    assert alone.report() == dict(
        of_own, weights=alone.identity, shortlist="words.tsv"
    )

    other = Chosen(steps[:1], 0xD, run_dir=pathlib.Path("runs/b"))
    both = Weights(ensemble=["runs/b"], chosen=(own, other))
    assert both.identity == (
        f"{alone.identity} + step-000000003 0000000d, mean of probabilities"
    )
    assert both.report() == dict(
        of_own,
        precision="float32",
        weights=both.identity,
        ensemble={"runs/b": ["step-000000003"]},
        ensemble_mean="probabilities",
    )
