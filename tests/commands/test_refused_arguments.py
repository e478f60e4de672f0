"""What the verbs refuse: files, numbers and folders, in one sentence each."""

import shutil

import pytest
from verb_calls import run


# What is there is kept.
@pytest.mark.parametrize("name", ["missing/target.de", "source.en"])
def test_an_output_that_cannot_be_written_is_an_error(
    run_dir, source_file, tmp_path, capsys, name
):
    path, before = tmp_path / name, source_file.read_bytes()
    files = ("--input", source_file, "--output", path)
    assert run("translate", run_dir, *files) == 2
    error = capsys.readouterr().err
    assert "`output`" in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source_file]
    assert source_file.read_bytes() == before


def test_an_input_that_cannot_be_read_is_an_error(run_dir, tmp_path, capsys):
    source = tmp_path / "none.en"
    assert run("translate", run_dir, "--input", source) == 2
    error = capsys.readouterr().err
    assert "--input" in error and str(source) in error


@pytest.mark.parametrize(
    "arguments, names",
    [
        ("--average 0", ["`average`"]),
        ("--n-best 5", ["`n_best`", "`beam_size`"]),
        ("--split-sentences --n-best 2", ["`split_sentences`", "`n_best`"]),
    ],
)
def test_senseless_arguments_are_refused(run_dir, capsys, arguments, names):
    assert run("translate", run_dir, *arguments.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert all(name in error for name in names)


def test_a_run_without_a_checkpoint_is_an_error(run_dir, tmp_path, capsys):
    without = shutil.ignore_patterns("checkpoints", "evalu*")
    copy = shutil.copytree(run_dir, tmp_path / "copy", ignore=without)
    assert run("evaluate", copy) == 2
    assert str(copy) in capsys.readouterr().err
    assert not (copy / "evaluation").exists()


def test_a_text_has_one_file(run_dir, source_file, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("translate", run_dir, source_file, "--input", source_file)
    assert "--input: not allowed with argument" in capsys.readouterr().err
