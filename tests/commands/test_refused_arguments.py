"""What the verbs refuse: files, numbers and folders, in one sentence each."""

import gzip
import shutil

import pytest
from verb_calls import give, run

from keras_transformer.translation import loading


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/target.de", "missing to write --output to; make it"),
        # What is there is kept.
        (
            "source.en",
            "Expected a new file as --output, but {path} exists; rem",
        ),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error(
    run_dir, source_file, tmp_path, capsys, name, message
):
    path, before = tmp_path / name, source_file.read_bytes()
    files = ("--input", source_file, "--output", path)
    assert run("translate", run_dir, *files) == 2
    error = capsys.readouterr().err
    assert message.format(path=path) in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source_file]
    assert source_file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"ok\nalso ok\nth\xe9 l\xe0\n",
            "found other bytes in line 3 (invalid continuation byte); convert "
            "the text",
        ),
        (
            gzip.compress(b"a dog\n", mtime=0),
            "found a packed file, .gz; unpack it with gunzip",
        ),
    ],
)
def test_bytes_that_are_not_utf_8_are_an_error(
    run_dir, tmp_path, monkeypatch, capsys, content, message
):
    give(monkeypatch, content)
    assert run("translate", run_dir) == 2
    expected = "error: Expected UTF-8 text in {}, " + message + ".\n"
    assert capsys.readouterr().err == expected.format("standard input")

    monkeypatch.setattr(loading, "load", None)  # Never called.
    source = tmp_path / "source.en"
    source.write_bytes(content)
    output = ("--output", tmp_path / "target.de")
    assert run("translate", run_dir, source, *output) == 2
    assert capsys.readouterr().err == expected.format(source)
    assert list(tmp_path.iterdir()) == [source]


def test_an_input_that_cannot_be_read_is_an_error(run_dir, tmp_path, capsys):
    source = tmp_path / "none.en"
    assert run("translate", run_dir, "--input", source) == 2
    error = capsys.readouterr().err
    assert f"can be read as --input, received {source}" in error
    # As it was given.
    assert run("translate", run_dir, tmp_path) == 2
    assert "can be read as FILE, received" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--average 0", "--average to be at least 1, received 0"),
        ("--n-best 5", "--n-best to be at most 4, the --beam-size, received 5"),
        ("--sample --top-p 0", "--top-p to be in (0, 1], received 0.0"),
        (
            "--split-sentences --n-best 2",
            "--split-sentences without --n-best, received both; leave one out",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    run_dir, capsys, arguments, message
):
    assert run("translate", run_dir, *arguments.split()) == 2
    assert capsys.readouterr().err == f"error: Expected {message}.\n"


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_a_run_without_a_checkpoint_is_an_error(
    run_dir, tmp_path, monkeypatch, capsys, verb
):
    give(monkeypatch, b"a dog\n")
    without = shutil.ignore_patterns("checkpoints", "evalu*")
    copy = shutil.copytree(run_dir, tmp_path / "copy", ignore=without)
    assert run(verb, copy) == 2
    assert f"error: {copy} has no checkpoint yet" in capsys.readouterr().err
    assert not (copy / "evaluation").exists()
