"""What the verbs refuse: files, numbers and folders, in one sentence each."""

import gzip
import shutil

import pytest
from verb_calls import give, run

from keras_transformer.translation.translator import Translator


def test_an_output_that_exists_is_kept(run_dir, source_file, tmp_path, capsys):
    output = tmp_path / "target.de"
    output.write_text("dear\n")

    code = run("translate", run_dir, "--input", source_file, "--output", output)

    assert code == 2
    assert capsys.readouterr().err == (
        f"error: Expected a new file as --output, but {output} exists; "
        "remove it or choose another name.\n"
    )
    assert output.read_text() == "dear\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/target.de", "No such file or directory"),
        ("source.en/target.de", "Not a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error(
    run_dir, source_file, tmp_path, capsys, name, message
):
    code = run(
        *("translate", run_dir, "--input", source_file),
        *("--output", tmp_path / name),
    )

    error = capsys.readouterr().err
    assert code == 2
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source_file]


def test_bytes_that_are_not_utf_8_are_found_before_the_work(
    run_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(Translator, "from_run", None)  # Never called.
    source = tmp_path / "latin1.en"
    source.write_bytes("ok\nalso ok\nthé là\n".encode("latin-1"))

    code = run(
        *("translate", run_dir, "--input", source),
        *("--output", tmp_path / "target.de"),
    )

    assert code == 2
    assert capsys.readouterr().err == (
        f"error: Expected UTF-8 text in {source}, found other bytes in line 3 "
        "(invalid continuation byte); convert the text.\n"
    )
    assert list(tmp_path.iterdir()) == [source]


def test_a_text_that_gzip_has_packed_is_to_be_unpacked(
    run_dir, tmp_path, monkeypatch, capsys
):
    packed = gzip.compress(b"a dog\n")
    source = tmp_path / "a.en.gz"
    source.write_bytes(packed)
    give(monkeypatch, packed)

    for name, words in ((source, [source]), ("standard input", [])):
        assert run("translate", run_dir, *words) == 2
        assert capsys.readouterr().err == (
            f"error: Expected UTF-8 text in {name}, found it packed by gzip; "
            "unpack it, as in zcat FILE | keras-transformer translate "
            "--run-dir RUN.\n"
        )


@pytest.mark.parametrize(
    "words",
    [
        ("view", "th\udce9"),
        ("view", "thé", "--prefix", "th\udce9"),
        ("translate", "--prefix", "th\udce9"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_refused(run_dir, words, capsys):
    verb, *others = words
    with pytest.raises(SystemExit, match="2"):
        run(verb, run_dir, *others)
    assert "expected a text in UTF-8" in capsys.readouterr().err


def test_bytes_on_standard_input_that_are_not_utf_8_are_an_error(
    run_dir, monkeypatch, capsys
):
    give(monkeypatch, b"ok\n\xff\n")

    assert run("translate", run_dir) == 2
    assert capsys.readouterr().err == (
        "error: Expected UTF-8 text in standard input, found other bytes in "
        "line 2 (invalid start byte); convert the text.\n"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none.en", "No such file or directory"), (".", "Is a directory")],
)
def test_an_input_that_cannot_be_read_is_an_error(
    run_dir, tmp_path, capsys, name, reason
):
    source = tmp_path / name

    assert run("translate", run_dir, "--input", source) == 2
    assert capsys.readouterr().err == (
        f"error: Expected a file that can be read as --input, received "
        f"{source} ({reason}); check the path.\n"
    )


@pytest.mark.parametrize("text", ["three hundred and two", "word " * 100])
def test_a_text_in_the_place_of_a_file_is_an_error(run_dir, capsys, text):
    assert run("translate", run_dir, text) == 2
    assert capsys.readouterr().err == (
        f"error: Expected a file as FILE, found none at {text}; check the "
        "path, or to translate a text: echo TEXT | keras-transformer translate "
        "--run-dir RUN.\n"
    )


def test_a_file_that_cannot_be_read_is_called_as_it_was_given(
    run_dir, tmp_path, capsys
):
    assert run("translate", run_dir, tmp_path) == 2
    assert "can be read as FILE, received" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--beam-size", 0],
            "Expected --beam-size to be at least 1, received 0",
        ),
        (["--average", 0], "Expected --average of at least 1, received 0"),
        (
            ["--length-penalty", -0.1],
            "Expected --length-penalty to be at least 0 and finite, received "
            "-0.1",
        ),
        (
            ["--length-penalty", "nan"],
            "Expected --length-penalty to be at least 0 and finite, received "
            "nan",
        ),
        (
            ["--parallel", 0],
            "Expected --parallel to be at least 1, received 0",
        ),
        (
            ["--parallel", -1],
            "Expected --parallel to be at least 1, received -1",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_numbers_that_make_no_sense_are_refused(
    run_dir, capsys, verb, arguments, message
):
    assert run(verb, run_dir, *arguments) == 2
    assert capsys.readouterr().err == f"error: {message}.\n"


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_a_number_of_searches_that_is_none_is_refused(run_dir, capsys, verb):
    with pytest.raises(SystemExit) as stopped:
        run(verb, run_dir, "--parallel", "x")
    assert stopped.value.code == 2
    assert "argument --parallel: invalid int value: 'x'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--n-best", 5],
            "Expected --n-best to be at most 4, the --beam-size, received 5",
        ),
        (
            ["--max-length", 5, "--min-length", 7],
            "Expected --max-length to be at least 7, the --min-length, "
            "received 5",
        ),
        (
            ["--sample", "--top-p", 0],
            "Expected --top-p to be in (0, 1], received 0.0",
        ),
        (
            ["--top-k", 5],
            "Expected --sample beside --top-k, received --top-k alone; add "
            "--sample or leave it out",
        ),
        (
            ["--split-sentences", "--n-best", 2],
            "Expected --split-sentences without --n-best, received both; leave "
            "one out",
        ),
        (
            ["--split-sentences", "--prefix", "a"],
            "Expected --split-sentences without --prefix, received both; leave "
            "one out",
        ),
        (
            ["--split-sentences", "--alignment"],
            "Expected --split-sentences without --alignment, received both; "
            "leave one out",
        ),
    ],
)
def test_numbers_of_translate_that_make_no_sense_are_refused(
    run_dir, capsys, arguments, message
):
    assert run("translate", run_dir, *arguments) == 2
    assert capsys.readouterr().err == f"error: {message}.\n"


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_a_folder_that_is_no_run_is_an_error(
    tmp_path, monkeypatch, capsys, verb
):
    give(monkeypatch, b"a dog\n")

    assert run(verb, tmp_path) == 2
    assert capsys.readouterr().err == (
        "error: Expected a run directory with a config.json, found none at "
        f"{tmp_path}/config.json; train one first.\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["translate", "evaluate"])
def test_a_run_without_a_checkpoint_is_an_error(
    run_dir, tmp_path, monkeypatch, capsys, verb
):
    copy = tmp_path / "copy"
    shutil.copytree(
        run_dir, copy, ignore=shutil.ignore_patterns("checkpoints", "evalu*")
    )
    give(monkeypatch, b"a dog\n")

    assert run(verb, copy) == 2
    assert capsys.readouterr().err == (
        f"error: {copy} has no checkpoint yet; train until it has written "
        "one.\n"
    )
    assert not (copy / "evaluation").exists()
