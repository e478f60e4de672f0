"""What the verbs refuse: files, numbers and folders, in one sentence each."""

import shutil

import pytest
from verb_calls import SOURCES, refused, run, write_lines


@pytest.mark.parametrize(
    "verb, words, names",
    [
        # What is there is kept.
        ("translate", "source.en --output source.en", ["`output`"]),
        ("translate", "source.en --output missing/de", ["`output`"]),
        ("translate", "--input none.en", ["--input", "none.en"]),
        ("translate", "source.en --prefixes few", ["--prefixes"]),
        ("translate", "source.en --shortlist none.tsv", ["none.tsv"]),
        ("translate", "--average 0", ["`average`"]),
        ("translate", "--n-best 5", ["`n_best`", "`beam_size`"]),
        ("translate", "--split-sentences --n-best 2", ["`n_best`"]),
        ("score", "--source source.en --target few", ["--source", "--target"]),
        ("shortlist", "--output new.tsv --pairs 0", ["`pairs`"]),
        ("view", ". --output few", ["`output`"]),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    run_dir, source_file, tmp_path, monkeypatch, capsys, verb, words, names
):
    write_lines(tmp_path / "few", SOURCES[:3])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    error = refused(capsys, verb, run_dir, *words.split())
    assert all(name in error for name in names)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_text_with_nothing_to_draw_is_refused(run_dir, capsys):
    assert "TEXT" in refused(capsys, "view", run_dir, " \t")


def test_a_run_without_a_checkpoint_is_an_error(run_dir, tmp_path, capsys):
    without = shutil.ignore_patterns("checkpoints", "evalu*")
    copy = shutil.copytree(run_dir, tmp_path / "copy", ignore=without)
    assert str(copy) in refused(capsys, "evaluate", copy)
    assert not (copy / "evaluation").exists()


def test_a_text_has_one_file(run_dir, source_file, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("translate", run_dir, source_file, "--input", source_file)
    assert "--input: not allowed with argument" in capsys.readouterr().err
