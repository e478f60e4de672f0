import json
import os
import re
import shutil
from unittest import mock

import pytest
import tensorflow as tf
from programs import python
from sample_runs import digit_arguments, train_on_digits
from warned import warnings_of

from keras_transformer.commands import command_line
from keras_transformer.config import SETTINGS, UserError
from keras_transformer.runs import history, layout
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import loop


def arguments(corpus, run_dir, *more):
    steps = ("--warmup-steps", "20", "--steps", "30")
    rhythm = ("--checkpoint-every", "7", "--validation-steps", "20")
    return digit_arguments(corpus, run_dir, *steps, *rhythm, *more)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run that nothing interrupted."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    assert train_on_digits(*arguments(corpus, run_dir)) == 0
    return run_dir


def test_a_run_directory_holds_all_that_later_verbs_need(finished):
    written = {path.name for path in finished.iterdir()}
    assert written == {
        "config.json",
        "tokenizer.model",
        "records",
        "checkpoints",
        "logs",
        "final.weights.h5",
        "curve.png",
        "result.json",
    }
    config = json.loads((finished / "config.json").read_text())
    assert config["requested_vocab_size"] == 300
    assert config["training"]["batch_tokens"] == 256


@pytest.mark.slow
def test_time_ends_a_run_too(corpus, tmp_path, caplog):
    argv = arguments(corpus, tmp_path / "run", "--steps", "100000")
    caplog.set_level("INFO")
    for _ in range(2):
        assert train_on_digits(*argv, "--minutes", "0.05") == 0
    assert "is finished" in caplog.text
    assert re.search(r"Peak memory: \d+\.\d GB", caplog.text)


def error_of(capsys, *argv, code=command_line.WRONG):
    """The one sentence that a command prints which ends with `code`."""
    assert train_on_digits(*argv) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    (line,) = re.findall("^error: .*", output.err, re.MULTILINE)
    return line


@pytest.mark.parametrize(
    "flags, name",
    [
        ("--source-lang fr", "SPLIT.fr"),
        ("--validation-split dev", "dev"),
        ("--num-heads 3", "`num_heads`"),
        ("--init-from nowhere", "nowhere"),
        ("--run-dir /dev/null", "received the file /dev/null"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_leaves_nothing(
    corpus, tmp_path, capsys, flags, name
):
    argv = arguments(corpus, tmp_path / "run", *flags.split())
    assert name in error_of(capsys, *argv)
    assert not (tmp_path / "run").exists()


MAY_CHANGE = {
    **{"accumulate": 2, "steps": 11, "average": 3, "checkpoint_every": "11m"},
    **{"keep_checkpoints": 11, "validation_steps": 11, "target_bleu": 11.0},
    **{"patience": 11, "patience_on": "bleu", "beam_size": 2},
    **{"length_penalty": 1.1, "max_extra_length": 11, "max_finished": 11},
}
OF_THE_RUN = {
    **{"preset": "tiny", "source_lang": "fr", "target_lang": "fr"},
    **{"train_split": "x", "validation_split": "x", "symbols": ("x",)},
    "init_from": "x",
}
OTHERS = {
    **{"d_model": 16, "positions": "learned", "activation": "swish"},
    **{"precision": "mixed_bfloat16", "length_growth": 1.5},
    **{"dropout": 0.7, "label_smoothing": 0.7, "term_share": 0.7},
    **{"attention_dropout": 0.7, "validation_share": 0.7},
}


@pytest.mark.parametrize("name", [*OF_THE_RUN, *SETTINGS])
def test_a_resumed_run_takes_over_what_may_change_alone(finished, name):
    saved = RunConfig.load(finished)
    value = {**MAY_CHANGE, **OF_THE_RUN, **OTHERS}.get(name)
    if value is None:
        is_switch = SETTINGS[name].type is bool
        value = not getattr(saved.model, name) if is_switch else 7
    if name in MAY_CHANGE:
        now = saved.with_changes({name: value}, finished)
        parts = (now.training, now.search)
        assert [getattr(x, name) for x in parts if hasattr(x, name)] == [value]
        return
    said = f"{finished} .* {name} = .* says {re.escape(str(value))}(.0)?;"
    with pytest.raises(UserError, match=said):
        saved.with_changes({name: value}, finished)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_second_process_is_told_who_trains_and_touches_nothing(
    corpus, finished, tmp_path, capsys, is_begun
):
    run_dir = tmp_path / "run"
    if is_begun:
        shutil.copytree(finished, run_dir)
        (run_dir / "checkpoints" / ".partial-step-000000031").mkdir()
    with layout.only_writer(run_dir):  # As one that is preparing, or writing.
        before = {p: p.stat().st_mtime_ns for p in run_dir.rglob("*")}
        error = error_of(capsys, *arguments(corpus, run_dir, "--steps", "31"))
        after = {p: p.stat().st_mtime_ns for p in run_dir.rglob("*")}
    holder = rf"in use by process {os.getpid()} on .* since \d{{4}}-\d\d-"
    assert re.search(holder, error)
    assert after == before


def test_a_gpu_without_memory_is_one_sentence(
    corpus, tmp_path, capsys, monkeypatch
):
    full = tf.errors.ResourceExhaustedError(None, None, "OOM when")
    exhausted = mock.Mock(side_effect=full)
    monkeypatch.setattr(loop, "_take_steps", exhausted)
    argv = arguments(corpus, tmp_path / "run")
    error = error_of(capsys, *argv, code=command_line.FAILED)
    assert "Out of memory" in error and "`accumulate`" in error


@pytest.mark.stands_for("runs that go on without their text")
def test_a_run_directory_is_enough_to_go_on(corpus, tmp_path, caplog):
    text = shutil.copytree(corpus, tmp_path / "text")
    argv = arguments(text, tmp_path / "run", "--steps", "3")
    assert train_on_digits(*argv) == 0
    shutil.rmtree(text)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert train_on_digits("--run-dir", moved, "--steps", "4") == 0
    assert history.read_history(moved)[-1]["step"] == 4
    assert warnings_of("/text", caplog) == 0


def test_what_can_be_seen_to_be_wrong_is_told_without_tensorflow(tmp_path):
    program = (
        "import sys; from keras_transformer.__main__ import main\n"
        "for words in ('--preset huge', '--strategy tpu', '--seed -1'):\n"
        "    argv = ['--corpus', 'demo', *words.split()]\n"
        "    assert main(['train', *argv]) == 2\n"
        "assert main(['train', '--corpus', 'nowhere']) == 2\n"
        "assert main(['train', '--run-dir', 'run']) == 2\n"
        "print(*sys.modules)"
    )
    done = python("-c", program, cwd=tmp_path)
    assert done.stderr.count("error: ") == 5
    assert "`corpus`" in done.stderr.splitlines()[-1]
    assert not {"keras", "tensorflow", "numpy"} & set(done.stdout.split())
    assert not list(tmp_path.iterdir())
