"""`python -m keras_transformer` as a program of its own, with pipes."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys

import pytest
from verb_calls import on_one_line

import keras_transformer
from keras_transformer.__main__ import main
from keras_transformer.config import MAX_SOURCE_LENGTH

ROOT = pathlib.Path(__file__).parents[2]


def start(*command, stdout=subprocess.PIPE, **options):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        **options,
    )


def test_help_shows_the_verbs_with_an_example_each():
    done = start("-m", "keras_transformer", "--help", text=True)

    assert done.returncode == 0
    for verb in ("translate", "score", "evaluate", "view", "export"):
        assert f"keras-transformer {verb} --run-dir runs/demo" in done.stdout


@pytest.mark.parametrize("verb", ["translate", "view", "export"])
def test_help_names_the_length_after_which_a_verb_cuts(verb, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    (said,) = re.findall(
        r"--max-source-length MAX_SOURCE_LENGTH (.*?) --",
        " ".join(capsys.readouterr().out.split()).partition("options:")[2],
    )
    assert said.endswith(f"verbs and exports take {MAX_SOURCE_LENGTH}")


@pytest.mark.parametrize("arguments", [[], ["sing"], ["translate"]])
def test_an_unknown_verb_or_a_missing_argument_is_wrong(arguments):
    done = start("-m", "keras_transformer", *arguments, text=True)

    assert done.returncode == 2
    assert done.stdout == "" and "error:" in done.stderr


@pytest.mark.slow
def test_as_a_program_it_reads_and_writes_pipes_alone(run_dir, translator):
    done = start(
        *("-m", "keras_transformer", "translate", "--run-dir", run_dir),
        input=b"a dog\n\nthe dog\n",
    )

    expected = translator.translate(["a dog", "", "the dog"])
    assert done.returncode == 0
    assert done.stdout.decode().split("\n") == [
        *map(on_one_line, expected),
        "",
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


def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = start("-c", PRINT, stdout=full, text=True)

    assert done.returncode == 1
    assert done.stderr == (
        "error: No space left on device; free space or choose a place that "
        "can be written, then run the same command again.\n"
    )


def test_a_misspelt_verb_is_told_what_it_may_mean():
    done = start("-m", "keras_transformer", "trian", "--corpus", "x", text=True)

    assert done.returncode == 2 and done.stdout == ""
    assert (
        "expected a verb, received trian (did you mean train?)" in done.stderr
    )


def test_the_version_comes_with_those_of_tensorflow_and_keras():
    done = start("-m", "keras_transformer", "--version", text=True)

    versions = {
        name: importlib.metadata.version(name)
        for name in ("tensorflow", "keras")
    }
    assert done.stdout == (
        f"keras-transformer {keras_transformer.__version__}, "
        f"TensorFlow {versions['tensorflow']}, Keras {versions['keras']}, "
        f"Python {platform.python_version()}\n"
    )


@pytest.mark.parametrize(
    "line, completed",
    [
        ("keras-transformer tra", {"train", "translate"}),
        ("keras-transformer train --warm", {"--warmup-steps"}),
        ("keras-transformer export --quantize i", {"int8"}),
    ],
)
def test_the_shell_completes_verbs_flags_and_choices(tmp_path, line, completed):
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
    assert {word.strip() for word in found} == completed
