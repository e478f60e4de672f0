"""`python -m keras_transformer` as a program, its hints, and what it reads."""

import importlib.metadata
import logging
import os
import pathlib
import platform
import subprocess
import sys

import pytest
from verb_calls import ENGLISH, on_one_line, run, write_lines

import keras_transformer
from keras_transformer.__main__ import main
from keras_transformer.commands import command_line
from keras_transformer.runs.run_config import RunConfig

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
def test_a_pipe_that_waits_gets_its_answers_as_the_lines_come(
    run_dir, translator
):
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
    assert done.stderr.startswith("error: No space left on device; ")
    assert done.stderr.count("\n") == 1


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


@pytest.fixture
def at_terminal(monkeypatch, caplog):
    """Lets standard output be a terminal; returns the hints so far."""
    caplog.set_level(logging.INFO, "keras_transformer")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return lambda: [x for x in caplog.messages if x.startswith("Next: ")]


def test_a_hint_is_a_command_that_a_shell_takes(at_terminal):
    command_line.say_next("serve", pathlib.Path("my exports"))
    assert at_terminal() == ["Next: keras-transformer serve 'my exports'"]


def test_no_hint_goes_beside_results_in_a_pipe(caplog, capsys):
    caplog.set_level(logging.INFO, "keras_transformer")
    command_line.say_next("serve", "exported")
    assert not caplog.messages
    assert capsys.readouterr().out == ""


def test_an_export_is_to_be_served(run_dir, tmp_path, at_terminal, monkeypatch):
    monkeypatch.setattr(
        "keras_transformer.exporting.saved_model.write",
        lambda *_: tmp_path / "new" / "1",
    )
    assert run("export", run_dir, "--output", tmp_path / "new") == 0
    assert at_terminal() == [f"Next: keras-transformer serve {tmp_path}/new"]


@pytest.mark.parametrize(
    "words",
    [
        ("translate", "FILE", "--beam-size", "1"),
        ("score", "--source", "FILE", "--target", "FILE", "--ensemble", "RUN"),
        ("evaluate", "--beam-size", "1"),
        ("backtranslate", "--text", "FILE", "--output", "FOLDER"),
        pytest.param(("export", "--output", "FOLDER"), marks=pytest.mark.slow),
    ],
)
def test_a_verb_reads_a_configuration_once(
    run_dir, tmp_path, monkeypatch, one_signature, words
):
    write_lines(tmp_path / "text", ENGLISH)
    places = {
        "FILE": tmp_path / "text",
        "FOLDER": tmp_path / "folder",
        "RUN": run_dir,
    }
    load, read = RunConfig.load, []

    def counted(path):
        read.append(path)
        return load(path)

    monkeypatch.setattr(RunConfig, "load", counted)
    verb, *others = words
    assert run(verb, run_dir, *(places.get(x, x) for x in others)) == 0
    assert read == [run_dir] * (1 + words.count("--ensemble"))
