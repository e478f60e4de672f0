import dataclasses
import inspect
import pickle
import re

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from sample_runs import make_run

import keras_transformer as kt
from keras_transformer.__main__ import parse_args
from keras_transformer.config import (
    SETTINGS,
    ModelConfig,
    Search,
    SettingError,
    TrainingConfig,
    UserError,
)
from keras_transformer.layers.block import LAYER_SETTINGS
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.weights import Weights
from keras_transformer.training.request import (
    SESSION_SETTINGS,
    Session,
    understand,
)

RUN = make_run(ModelConfig(vocab_size=7_919), requested_vocab_size=8_000)


def test_a_run_keeps_no_function():
    with pytest.raises(UserError, match="`activation`"):
        RunConfig.from_preset(corpus="demo", activation=lambda x: x)


@pytest.mark.parametrize("every", ["0", "0m", "0.0m", "m", "1.5", "-3", "10 m"])
def test_an_interval_is_of_updates_or_of_minutes(every):
    with pytest.raises(UserError, match="`checkpoint_every`"):
        TrainingConfig(checkpoint_every=every)


def test_a_checkpoint_is_due_by_updates_or_by_the_clock():
    by_updates = TrainingConfig(checkpoint_every="7").is_checkpoint_due
    assert [n for n in range(1, 22) if by_updates(n, 1e9)] == [7, 14, 21]
    by_minutes = TrainingConfig(checkpoint_every="0.5m").is_checkpoint_due
    assert by_minutes(3, 30.0) and not by_minutes(3, 29.9)


def test_what_is_no_run_directory_is_named(tmp_path):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/config")):
        RunConfig.load(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(UserError, match="not of an export"):
        RunConfig.load(tmp_path)


OF_BEFORE = """{
  "preset": "demo", "corpus": "demo",
  "source_lang": "en", "target_lang": "de",
  "train_split": "train", "validation_split": "val",
  "requested_vocab_size": 1000,
  "model": {"vocab_size": 991, "num_layers": 2, "d_model": 16},
  "training": {"steps": 7, "luck": %s, "care": %s, "normalization": "nfkc",
    "checkpoint_minutes": 2.5, "checkpoint_steps": null, "length_growth": null},
  "search": {"beam_size": 3, "length_penalty": 0.6, "no_unknown": false},
  "fingerprints": {"train": "d9f1e2b3"},
  "initial": null, "vocabulary": "44bf850b"
}"""


def test_an_older_run_is_read_without_settings_that_went(tmp_path, caplog):
    path = tmp_path / "config.json"
    path.write_text(OF_BEFORE % ("null", "0"))
    run = RunConfig.load(tmp_path)
    # What is not there has its default.
    assert run.training == TrainingConfig(steps=7, checkpoint_every="2.5m")
    assert run.search.beam_size == 3 and run.removed is None
    assert run.with_changes({"steps": 8}, tmp_path).training.steps == 8
    assert not caplog.messages

    path.write_text(OF_BEFORE % ("0.999", "0.0"))
    # However often it is read, and also after it was written.
    for _ in range(2):
        used = RunConfig.load(tmp_path)
        used.save(tmp_path)
    assert used == dataclasses.replace(run, removed={"luck": 0.999})
    (said,) = caplog.messages
    assert "luck = 0.999" in said and "version unknown" in said
    with pytest.raises(UserError, match=re.escape(said)):
        used.with_changes({"steps": 8}, tmp_path)


# A wrong value for each kind of setting, and a word of what is expected.
REFUSED = [
    (ModelConfig, "dropout", 1.0, "in [0, 1)"),
    (ModelConfig, "activation", "gleu", "gelu"),
    (ModelConfig, "activation", None, "text"),
    (ModelConfig, "norm_epsilon", float("nan"), "above 0"),
    (ModelConfig, "norm_first", "no", "True or False"),
    (ModelConfig, "d_model", 7, "even"),
    (TrainingConfig, "steps", 1.5, "a whole number"),
    (TrainingConfig, "keep_checkpoints", 3, "at least 5"),
    (TrainingConfig, "target_bleu", -1.0, "in [0, inf]"),
    (Search, "n_best", 5, "at most 4"),
    (Search, "beam_size", 2**63, "below 2^63"),
    (Search, "sampling", 0.7, "a Sampling"),
    (Weights, "precision", "float16", "int8"),
]


@pytest.mark.parametrize("kind, name, value, expected", REFUSED)
def test_a_setting_that_makes_no_sense_is_refused(kind, name, value, expected):
    with pytest.raises(SettingError) as caught:
        kind(**{name: value})
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.setting == name
    assert expected in error.expected
    assert error.received is value or error.received == pytest.approx(
        value, nan_ok=True
    )
    for part in (f"`{name}`", expected, repr(value)):
        assert part in str(error)
    assert isinstance(error, UserError) and isinstance(error, ValueError)


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(SettingError, match="`max_length`"):
        Search(min_length=7, max_length=5)


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"steps": 1e3}, 1_000),
        ({"steps": np.int64(7)}, 7),
        ({"steps": 2**53 + 1}, 9_007_199_254_740_993),
        ({"label_smoothing": 0}, 0.0),
        ({"checkpoint_every": 100}, "100"),
    ],
)
def test_numbers_of_other_types_become_those_of_the_field(given, expected):
    config = TrainingConfig(**given)
    [name] = given
    found = getattr(config, name)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_refused_setting_is_called_by_its_name(name):
    wrong = True if SETTINGS[name].type is not bool else "no"
    with pytest.raises(SettingError, match=f"Expected `{name}` ") as caught:
        RunConfig.from_preset(corpus="demo", **{name: wrong})
    assert caught.value.setting == name


@pytest.mark.parametrize(
    "unknown, meant", [("warmups", "warmup_steps"), ("strategi", "strategy")]
)
def test_an_unknown_setting_is_told_what_it_may_mean(capsys, unknown, meant):
    with pytest.raises(UserError, match=rf"did you mean {meant}\?"):
        understand(corpus="demo", **{unknown: 3})
    flag = f"--{unknown.replace('_', '-')}"
    with pytest.raises(SystemExit):
        parse_args(["train", flag, "3"])
    said = capsys.readouterr().err
    assert said.startswith(f"error: unrecognized arguments: {flag}")


LAYERS = (kt.layers.EncoderLayer, kt.layers.DecoderLayer)
STACKS = (kt.layers.Encoder, kt.layers.Decoder)
OF_SEARCH = """
    beam_size length_penalty n_best min_length max_finished no_repeat_ngram
""".split()
OF_MODEL = {f.name: f.default for f in dataclasses.fields(ModelConfig)}


@pytest.mark.parametrize(
    "targets, configuration, names",
    [
        ([kt.Transformer], ModelConfig, OF_MODEL),
        (LAYERS, ModelConfig, LAYER_SETTINGS),
        (STACKS, ModelConfig, ["num_layers", *LAYER_SETTINGS]),
        ([kt.beam_search], Search, OF_SEARCH),
        ([kt.train], Session, SESSION_SETTINGS),
    ],
)
def test_signatures_are_what_the_settings_say(targets, configuration, names):
    defaults = {f.name: f.default for f in dataclasses.fields(configuration)}
    for target in targets:
        parameters = dict(inspect.signature(target).parameters)
        for name in names:
            assert name in target.__doc__
            default = parameters.pop(name).default
            # A training takes what is not given from its preset or recipe.
            if target is not kt.train and name != "vocab_size":
                assert default == defaults[name]
        if target is not kt.beam_search:
            assert parameters.keys() <= {"kwargs", "settings"}


def test_resuming_keeps_the_vocabulary_that_the_corpus_could_fill():
    # A second command has the size asked for, the run the size it got.
    assert RUN.with_changes({"vocab_size": 8_000}, "runs/a") == RUN


def test_all_that_differs_from_a_run_is_one_sentence():
    with pytest.raises(UserError) as caught:
        RUN.with_changes({"d_model": 9, "steps": 7, "preset": "big"}, "runs/a")
    said = "with preset = tiny, d_model = 512, this command says big, 9;"
    assert said in str(caught.value)


def test_a_notebook_shows_a_mistake_without_a_stack_trace(capsys):
    shell = InteractiveShell.instance()
    for cell in ("kt.Run('nowhere')", "kt.train('x', corpus='demo', steps=-1)"):
        shell.run_cell(f"import keras_transformer as kt; {cell}")
        (line,) = capsys.readouterr().out.splitlines()
        assert "Error: Expected " in line
