"""A model of another shape from the command line to an answering SavedModel.

Its self-attention is restricted, and its stacks are of unequal depth.
"""

import json

import numpy as np
import pytest
from sample_runs import digit_arguments, train_on_digits
from session_loader import Served

from keras_transformer.__main__ import main
from keras_transformer.run import Run

pytestmark = pytest.mark.slow

DEPTHS = ("--encoder-layers", "2", "--decoder-layers", "1")
TEXTS = ["one two three four five six seven", "", "nine"]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "restricted"
    steps = ("--steps", "2", "--validation-steps", "2")
    argv = digit_arguments(
        corpus, run_dir, *DEPTHS, "--restriction", "3", *steps
    )
    assert train_on_digits(*argv) == 0
    return run_dir


@pytest.fixture(scope="module")
def translator(trained):
    return Run(trained).translator()


def test_the_run_keeps_it(trained, translator, corpus, capsys):
    fields = json.loads((trained / "config.json").read_text())
    kept = fields["model"]
    assert kept["restriction"] == 3
    assert (kept["encoder_layers"], kept["decoder_layers"]) == (2, 1)
    model = translator.model
    assert model.model_config.restriction == 3
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 1)
    argv = digit_arguments(corpus, trained, *DEPTHS, "--restriction", "5")
    assert train_on_digits(*argv) == 2
    assert "restriction = 3, this command says 5" in capsys.readouterr().err


def test_what_is_exported_answers_as_the_run_does(
    trained, translator, tmp_path
):
    options = ("--beam-size", "2", "--max-length", "11")
    argv = ("--run-dir", str(trained), "--output", str(tmp_path), *options)
    assert main(["export", *argv]) == 0
    found = Served(tmp_path / "1")("serving_default", text=TEXTS)
    expected = translator.translate(TEXTS, beam_size=2, max_length=11, n_best=1)
    assert [text.decode() for text in found["translation"]] == [
        best.text for (best,) in expected
    ]
    np.testing.assert_allclose(
        found["score"], [best.score for (best,) in expected], atol=1e-4
    )
