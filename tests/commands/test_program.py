"""`python -m keras_transformer` as a program, and what it reads."""

import importlib.metadata
import logging
import pathlib
import platform
import subprocess
import sys

import pytest
from programs import python
from project_table import ROOT
from verb_calls import ENGLISH, on_one_line, run, write_lines

import keras_transformer
from keras_transformer.__main__ import main
from keras_transformer.commands import command_line


def stop(capsys, *words):
    """Call the program in this process, which ends; return what it says."""
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return stopped.value.code, capsys.readouterr()


def test_help_shows_the_verbs_with_an_example_each(capsys):
    code, said = stop(capsys, "--help")
    assert code == 0
    for verb in ("translate", "score", "evaluate", "view", "export"):
        assert f"keras-transformer {verb} --run-dir runs/demo" in said.out


@pytest.mark.parametrize(
    "words, meant",
    [
        (["translate"], "--run-dir"),
        (["trian"], "train"),
        (["translate", "--run-dir=b", "--prefi", "a"], "--prefix"),
        (["train", "--run-dir="], "--run-dir: expected a path"),
        (["export", "--run-dir", "a", "--output="], "--output"),
    ],
)
def test_an_unknown_verb_or_a_missing_argument_is_wrong(words, meant, capsys):
    code, said = stop(capsys, *words)
    assert code == 2 and said.out == "" and meant in said.err


def test_the_version_comes_with_those_of_tensorflow_and_keras():
    done = python("-m", "keras_transformer", "--version")
    tensorflow, keras = map(importlib.metadata.version, ("tensorflow", "keras"))
    assert done.stdout == (
        f"keras-transformer {keras_transformer.__version__}, "
        f"TensorFlow {tensorflow}, Keras {keras}, "
        f"Python {platform.python_version()}\n"
    )


@pytest.mark.stands_for("a verb as a program of its own")
def test_a_pipe_gets_its_answers_as_the_lines_come(run_dir, translator):
    program = subprocess.Popen(
        [sys.executable, "-m", "keras_transformer", "translate"]
        + ["--run-dir", run_dir],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with program:
        said = []
        for given in (b"a dog\n\n", b"the dog\n"):
            program.stdin.write(given)
            program.stdin.flush()
            said += [program.stdout.readline() for _ in given.splitlines()]
        rest, log = program.communicate(b"")

    expected = translator.translate(["a dog", "", "the dog"])
    assert program.returncode == 0 and rest == b""
    assert [row.decode() for row in said] == [
        f"{on_one_line(text)}\n" for text in expected
    ]
    assert b"Averaging 2 of the last 5 checkpoints" in log


# More than a pipe holds, so that the program meets the end of its reader.
PRINT = """
import sys
from keras_transformer.commands import command_line
sys.exit(command_line.run(lambda: print("x" * 1_000_000)))
"""


def printing(stdout):
    words, said = [sys.executable, "-c", PRINT], subprocess.PIPE
    return subprocess.Popen(
        words, cwd=ROOT, stdout=stdout, stderr=said, text=True
    )


def test_a_reader_that_has_gone_is_told_nothing():
    with printing(subprocess.PIPE) as program:
        program.stdout.close()
        assert program.stderr.read() == ""
    assert program.returncode == 1


def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full, printing(full) as program:
        (said,) = program.stderr
    assert program.returncode == 1
    assert said.startswith("error: No space left on device")


def test_a_hint_is_a_shell_command_and_never_in_a_pipe(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "keras_transformer")
    command_line.say_next("serve", "exported")
    assert not caplog.messages
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command_line.say_next("serve", pathlib.Path("my exports"))
    assert caplog.messages == ["Next: keras-transformer serve 'my exports'"]


def test_backtranslate_pairs_a_text_with_its_translation(
    run_dir, translator, tmp_path
):
    text, made = tmp_path / "text", tmp_path / "made"
    write_lines(text, ENGLISH[:2])
    words = ("--text", text, "--output", made)
    assert run("backtranslate", run_dir, *words) == 0
    assert (made / "train.en").read_bytes() == text.read_bytes()
    said = (made / "train.de").read_bytes().decode().split("\n")
    expected = map(on_one_line, translator.translate(ENGLISH[:2]))
    assert said == [*expected, ""]
