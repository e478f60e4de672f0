"""The search that a run keeps, and who follows it."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from session_loader import Served

from keras_transformer import __main__
from keras_transformer.commands import flags
from keras_transformer.config import Search
from keras_transformer.run import Run
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation.model_card import ModelCard

SEARCH = Search(beam_size=2, length_penalty=1.7, max_extra_length=3)
TEXTS = ["ein kleiner Hund", "die Wiese und der Hund laut", "laut"]


@pytest.fixture(scope="module")
def run_dir(small_run, tmp_path_factory):
    """A small run with a search of its own."""
    path = shutil.copytree(small_run, tmp_path_factory.mktemp("a") / "run")
    run = RunConfig.load(path)
    dataclasses.replace(run, search=SEARCH).save(path)
    return path


@pytest.fixture(scope="module")
def translator(run_dir):
    return Run(run_dir).translator(average=1)


def options(verb, run_dir, *words, n_best=1):
    argv = [verb, "--run-dir", str(run_dir), *words]
    _, search = flags.prepare(__main__.parse_args(argv), n_best)
    return search


def test_a_run_that_begins_with_another_searches_like_it(run_dir):
    run = RunConfig.from_preset(corpus="c", init_from=run_dir)
    assert run.search == SEARCH


def test_flags_that_are_not_given_are_the_runs(run_dir):
    found = options("translate", run_dir)
    assert found == dataclasses.replace(SEARCH, max_source_length=256)
    # An export has four hypotheses, but no more than beams.
    assert options("export", run_dir, "--output=o", n_best=4).n_best == 2
    given = options("translate", run_dir, "--beam-size=5", "--n-best=5")
    assert (given.beam_size, given.n_best, given.length_penalty) == (5, 5, 1.7)
    given = options("translate", run_dir, "--max-extra-length=7")
    assert (given.beam_size, given.max_extra_length) == (2, 7)


def test_a_translation_is_at_most_as_much_longer_as_the_run_says(translator):
    sources = translator.tokenizer.tokenize(TEXTS)
    # An end far away lets every hypothesis run to the limit.
    far = translator.search_with(min_length=1_000)

    found = translator.id_model.search_ids(sources.to_tensor(0), far)

    lengths = tf.math.count_nonzero(found.ids[:, 0], axis=1)
    np.testing.assert_array_equal(lengths, sources.row_lengths() + 3)


@pytest.mark.stands_for("exports of runs")
def test_python_and_an_export_search_as_the_run_says(
    run_dir, translator, tmp_path, one_signature
):
    as_said = translator.search_texts(
        TEXTS, dataclasses.replace(SEARCH, n_best=2)
    )[0]
    assert translator.translate(TEXTS, n_best=2) == as_said
    # The paper's search would find something else.
    paper = dict(beam_size=4, length_penalty=0.6, max_extra_length=50)
    assert translator.translate(TEXTS, n_best=2, **paper) != as_said
    targets = [hypotheses[0].text for hypotheses in as_said]
    assert translator.score(TEXTS, targets) == translator.score(
        TEXTS, targets, length_penalty=1.7
    )

    export = Run(run_dir).export(tmp_path, average=1)

    assert ModelCard.load(export).search["n_best"] == 2
    found = Served(export)("serving_default", text=TEXTS)
    assert [text.decode() for text in found["translation"]] == targets
    np.testing.assert_allclose(
        found["score"], [best.score for best, *_ in as_said], rtol=1e-4
    )


def test_a_run_is_not_longer_than_its_learned_positions():
    learned = dict(corpus="demo", positions="learned")
    with pytest.raises(ValueError, match="`max_length`"):
        RunConfig.from_preset(**learned, max_length=1025)
    for more in ({"max_length": 1024}, {"max_length": 2, "max_positions": 2}):
        assert RunConfig.from_preset(**learned, **more)
    assert RunConfig.from_preset(corpus="demo", max_length=2048)


def test_a_source_is_cut_where_the_translator_cuts_or_training_did():
    for longest, cut in ((100, 256), (701, 701)):
        run = RunConfig.from_preset(corpus="demo", max_length=longest)
        assert run.longest_source == cut
