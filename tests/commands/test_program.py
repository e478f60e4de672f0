"""`python -m keras_transformer` as a program of its own, with pipes."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys

import pytest
from verb_calls import on_one_line

import keras_transformer
from keras_transformer.__main__ import main

ROOT = pathlib.Path(__file__).parents[2]


def start(*command, stdout=subprocess.PIPE, **options):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        **options,
    )


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
    "words, message",
    [
        (["translate"], "error: "),
        (["trian"], "expected a verb, received trian (did you mean train?)"),
        (
            ["translate", "--pref", "a", "--run-di=b"],
            "unrecognized arguments: --pref (did you mean --prefix?). See ",
        ),
    ],
)
def test_an_unknown_verb_or_a_missing_argument_is_wrong(words, message, capsys):
    code, said = stop(capsys, *words)
    assert code == 2 and said.out == "" and message in said.err


def test_the_version_comes_with_those_of_tensorflow_and_keras():
    done = start("-m", "keras_transformer", "--version", text=True)
    tensorflow, keras = map(importlib.metadata.version, ("tensorflow", "keras"))
    assert done.stdout == (
        f"keras-transformer {keras_transformer.__version__}, "
        f"TensorFlow {tensorflow}, Keras {keras}, "
        f"Python {platform.python_version()}\n"
    )


@pytest.mark.stands_for("a verb as a program of its own")
def test_as_a_program_it_reads_and_writes_pipes_alone(run_dir, translator):
    done = start(
        *("-m", "keras_transformer", "translate", "--run-dir", run_dir),
        input=b"a dog\n\nthe dog\n",
    )

    expected = translator.translate(["a dog", "", "the dog"])
    assert done.returncode == 0
    assert done.stdout.decode().split("\n")[:-1] == [
        on_one_line(text) for text in expected
    ]
    assert b"Averaging only 2 checkpoints instead of 5" in done.stderr


# More than a pipe holds, so that the program meets the end of its reader.
PRINT = """
import sys
from keras_transformer.commands import command_line
sys.exit(command_line.run(lambda: print("x" * 1_000_000)))
"""


def test_a_reader_that_has_gone_is_told_nothing():
    program = subprocess.Popen(
        [sys.executable, "-c", PRINT],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    program.stdout.close()

    assert program.stderr.read() == b""
    assert program.wait() == 1


READ = """
import sys
from keras_transformer.commands import command_line
def run():
    assert sys.stdin.buffer.read() == b"" and not sys.stdin.isatty()
    sys.stdout.buffer.write(b"x")
sys.exit(command_line.run(run))
"""


@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(closed):
    command = f'"{sys.executable}" -c "$READ" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT,
        env={**os.environ, "READ": READ},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = start("-c", PRINT, stdout=full, text=True)

    assert done.returncode == 1
    assert done.stderr == (
        "error: No space left on device; free space or choose a place that "
        "can be written, then run the same command again.\n"
    )


def test_the_shell_completes_what_a_flag_may_be(tmp_path):
    line = "keras-transformer export --format c"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "found"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }

    done = start("-m", "keras_transformer", env=environment)

    assert done.returncode == 0
    found = (tmp_path / "found").read_text().split("\x0b")
    assert {word.strip() for word in found} == {"ctranslate2"}
