import dataclasses
import json
import re

import pytest
from run_config import make_run

from keras_transformer import config, files
from keras_transformer.__main__ import parse_args
from keras_transformer.config import (
    LATER_SETTINGS,
    PRESETS,
    ModelConfig,
    SearchConfig,
    TrainingConfig,
    UserError,
)
from keras_transformer.runs.run_config import RunConfig


def run_of(model=None, training=None, **changes):
    return make_run(
        ModelConfig(vocab_size=7_919, **(model or {})),
        TrainingConfig(**(training or {})),
        **{"corpus": "some/folder", "requested_vocab_size": 8_000, **changes},
    )


def test_four_ids_have_four_roles():
    ids = (config.PAD_ID, config.UNK_ID, config.BOS_ID, config.EOS_ID)
    assert ids == (0, 1, 2, 3)


def test_presets_cannot_be_changed_by_mistake():
    with pytest.raises(TypeError):
        PRESETS["base"] = PRESETS["big"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["base"].model.d_model = 1


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_passes_its_own_check(preset):
    row = PRESETS[preset]
    run_of(preset=preset).check()
    dataclasses.replace(
        run_of(), model=row.model, training=row.training
    ).check()


def test_a_run_comes_back_as_it_was_saved(tmp_path):
    run = run_of(
        {"positions": "learned", "dropout": 0.0},
        {"checkpoint_steps": 17, "checkpoint_minutes": 2.5},
        corpus="Größe/語料",
    )
    run.save(tmp_path)
    assert RunConfig.load(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_save_that_fails_leaves_the_old_configuration(tmp_path, monkeypatch):
    old = run_of()
    old.save(tmp_path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        run_of(preset="base").save(tmp_path)

    assert RunConfig.load(tmp_path) == old


def test_a_directory_without_a_configuration_is_no_run(tmp_path):
    message = (
        "Expected a run directory with a config.json, found none at "
        f"{tmp_path}/config.json; train one with train.py --run-dir {tmp_path}."
    )
    with pytest.raises(UserError) as caught:
        RunConfig.load(tmp_path)
    assert str(caught.value) == message


def test_a_file_is_no_run_directory(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(UserError, match="Expected a run directory with a"):
        RunConfig.load(path)


def without(fields, name):
    return {key: value for key, value in fields.items() if key != name}


@pytest.mark.parametrize(
    "damage",
    [
        lambda fields: b"",
        lambda fields: json.dumps(fields).encode()[:-9],
        lambda fields: b"\xff\xfe",
        lambda fields: b"[1, 2]",
        lambda fields: b"null",
        lambda fields: json.dumps({**fields, "colour": 1}).encode(),
        lambda fields: json.dumps(without(fields, "preset")).encode(),
        lambda fields: json.dumps(without(fields, "model")).encode(),
        lambda fields: json.dumps({**fields, "training": [1]}).encode(),
        lambda fields: json.dumps({**fields, "model": {"depth": 6}}).encode(),
    ],
)
def test_a_damaged_configuration_is_named(tmp_path, damage):
    path = tmp_path / "config.json"
    path.write_bytes(damage(dataclasses.asdict(run_of())))
    with pytest.raises(UserError) as caught:
        RunConfig.load(tmp_path)
    message = str(caught.value)
    assert message.startswith(
        f"{path} is not a configuration this version can read ("
    )
    assert message.endswith("); train the run again or restore the file.")


def test_a_run_of_an_older_version_is_read(tmp_path):
    run = run_of()
    fields = dataclasses.asdict(run)
    del fields["training"]["ema"], fields["training"]["target_bleu"]
    del fields["fingerprints"], fields["initial"]
    del fields["model"]["restriction"]
    for name in LATER_SETTINGS:
        part = "model" if name in fields["model"] else "training"
        del fields[part][name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert RunConfig.load(tmp_path) == run
    assert run.training.ema is None


NEEDED = [
    (part, field.name)
    for part, kind in (("model", ModelConfig), ("training", TrainingConfig))
    for field in dataclasses.fields(kind)
    if field.default is not None and field.name not in LATER_SETTINGS
]


@pytest.mark.parametrize("part, name", NEEDED)
def test_every_other_field_must_be_there(tmp_path, part, name):
    fields = dataclasses.asdict(run_of())
    del fields[part][name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(UserError, match=f"it lacks {name}"):
        RunConfig.load(tmp_path)


@pytest.mark.parametrize(
    "model, training, message",
    [
        ({"dropout": 1.0}, {}, "--dropout in [0, 1), received 1.0."),
        ({"dropout": -0.1}, {}, "--dropout in [0, 1), received -0.1."),
        (
            {"restriction": 0},
            {},
            "--restrict above 0 and below 1,000,000, received 0.",
        ),
        # What the command line has no flag for.
        (
            {"activation": "gelu"},
            {},
            "`activation` one of relu, swish, received gelu.",
        ),
        (
            {"first_position": -1},
            {},
            "`first_position` of at least 0, received -1.",
        ),
        ({"max_positions": 0}, {}, "`max_positions` above 0, received 0."),
        (
            {"norm_epsilon": float("nan")},
            {},
            "`norm_epsilon` above 0, received nan.",
        ),
        ({}, {"ema": 1.0}, "--ema in (0, 1), received 1.0."),
        ({}, {"ema": 0.0}, "--ema in (0, 1), received 0.0."),
        (
            {},
            {"label_smoothing": 1.5},
            "--label-smoothing in [0, 1), received 1.5.",
        ),
        (
            {},
            {"precision": "float64"},
            "--precision one of float32, mixed_bfloat16, mixed_float16, "
            "received float64.",
        ),
        ({}, {"steps": 0}, "--steps above 0, received 0."),
        ({}, {"batch_tokens": -1}, "--batch-tokens above 0, received -1."),
        ({}, {"max_length": 0}, "--max-length above 0, received 0."),
        ({}, {"warmup_steps": 0}, "--warmup-steps above 0, received 0."),
        (
            {},
            {"learning_rate_scale": 0.0},
            "--learning-rate-scale above 0, received 0.0.",
        ),
        (
            {},
            {"checkpoint_minutes": float("nan")},
            "--checkpoint-minutes above 0, received nan.",
        ),
        (
            {},
            {"checkpoint_steps": 0},
            "--checkpoint-steps above 0, received 0.",
        ),
        (
            {},
            {"keep_checkpoints": 0},
            "--keep-checkpoints above 0, received 0.",
        ),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(model, training, message):
    with pytest.raises(UserError) as caught:
        run_of(model, training).check()
    assert str(caught.value) == f"Expected {message}"


NUMBERS = [
    field.name
    for kind in (ModelConfig, TrainingConfig, SearchConfig)
    for field in dataclasses.fields(kind)
    if not isinstance(field.default, str | bool)
    and field.name not in ("vocab_size", "target_bleu")
]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_refused_setting_is_called_by_a_flag_if_there_is_one(name, capsys):
    with pytest.raises(UserError) as caught:
        RunConfig.from_preset(corpus="demo", **{name: -1})
    called = re.match(r"Expected (\S+) ", str(caught.value))[1]
    if called.startswith("--"):
        parse_args(["train", "--corpus", "demo", called, "1"])
    else:
        assert called == f"`{name}`"
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(SystemExit):
            parse_args(["train", "--corpus", "demo", flag, "1"])
        assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


def test_one_language_for_both_sides_is_refused():
    with pytest.raises(UserError) as caught:
        run_of(source_lang="de").check()
    assert str(caught.value) == (
        "Expected two languages, received de for both sides; change "
        "--source-lang or --target-lang."
    )


def test_resuming_takes_over_what_may_change():
    saved = run_of(training={"steps": 100, "keep_checkpoints": 7})
    now = run_of(training={"steps": 300, "keep_checkpoints": 9})

    resumed = now.resume(saved, ["steps", "keep_checkpoints"], "runs/a")

    assert resumed.training.steps == 300
    assert resumed.training.keep_checkpoints == 9
    assert dataclasses.replace(resumed, training=saved.training) == saved


def test_weights_of_a_whole_model_may_begin_a_restricted_one(tmp_path):
    run_of().save(tmp_path)
    settings = dict(corpus="demo", init_from=tmp_path)
    run = RunConfig.from_preset(**settings, restriction=17)
    assert run.model == dataclasses.replace(run_of().model, restriction=17)
    assert RunConfig.from_preset(**settings).model == run_of().model


def test_resuming_keeps_the_vocabulary_that_the_corpus_could_fill():
    # A second command has the size asked for, the run the size it got.
    saved = run_of()
    now = dataclasses.replace(
        saved, model=dataclasses.replace(saved.model, vocab_size=8_000)
    )
    assert now.resume(saved, ["steps"], "runs/a") == saved


@pytest.mark.parametrize("symbols", [None, ("(S",), (")S", "(S")])
def test_a_run_keeps_its_symbols(tmp_path, symbols):
    saved = run_of(symbols=("(S", ")S"))
    saved.save(tmp_path)
    assert RunConfig.load(tmp_path) == saved
    assert saved.resume(saved, [], "runs/a") == saved
    with pytest.raises(UserError, match="runs/a was trained with other --sym"):
        run_of(symbols=symbols).resume(saved, [], "runs/a")


@pytest.mark.parametrize(
    "part, name, old, new",
    [
        ("model", "d_model", 512, 256),
        ("model", "dropout", 0.1, 0.3),
        ("training", "seed", 1, 2),
        ("training", "steps", 100_000, 7),
        (None, "source_lang", "en", "fr"),
        (None, "preset", "tiny", "base"),
        (None, "requested_vocab_size", 8_000, 9_000),
    ],
)
def test_resuming_refuses_what_may_not_change(part, name, old, new):
    saved = run_of()
    now = run_of(
        {name: new} if part == "model" else None,
        {name: new} if part == "training" else None,
        **({} if part else {name: new}),
    )
    with pytest.raises(UserError) as caught:
        now.resume(saved, ["keep_checkpoints"], "runs/a")
    assert str(caught.value) == (
        f"runs/a was trained with {name} = {old}, this command says {new}; "
        "give the same, or another --run-dir."
    )
