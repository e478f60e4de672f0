"""@FILE and @RECIPE: words of a file in the place of its name."""

import pathlib

import pytest

from keras_transformer.commands.command_line import with_files
from keras_transformer.config import UserError
from keras_transformer.training.request import recipes

FOLDER = pathlib.Path(__file__).parents[2] / "keras_transformer" / "recipes"


def test_a_file_may_hold_comments_quotes_and_spaces(tmp_path):
    path = tmp_path / "x.args"
    path.write_text(
        "# the paper's\n--steps 3  # few\n\n--corpus 'a folder'\n--seed=5"
    )
    words = ["--steps", "3", "--corpus", "a folder", "--seed=5"]
    assert with_files(["-a", f"@{path}", "-b"]) == ["-a", *words, "-b"]
    # As Windows may save it.
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert with_files([f"@{path}"]) == words
    # A command line without a file stays as it is.
    argv = ["--corpus", "a@b", "", "--seed=5"]
    assert with_files(argv) == argv


def test_every_recipe_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {path.stem for path in FOLDER.glob("*.args")}
    assert names and set(recipes()) == names
    for name in names:
        of_file = with_files([f"@{FOLDER / name}.args"])
        assert of_file[0].startswith("--")
        assert with_files([f"@{name}"]) == of_file
        assert with_files([f"@{name}.args"]) == of_file


def test_the_last_source_of_corpora_replaces_those_of_files(tmp_path):
    for name in "xy":
        (tmp_path / name).write_text(f"--corpus {name} --corpus={name}2")
    x, y = (f"@{tmp_path / name}" for name in "xy")
    of_y = ["--corpus", "y", "--corpus=y2"]
    assert with_files([x, y]) == of_y
    assert with_files([x, "--corpus", "z", y]) == ["--corpus", "z"]
    assert with_files([y, x, "--corpus=z"]) == ["--corpus=z"]
    assert with_files([y, "--checkpoint-every", "3"])[:-2] == of_y


@pytest.mark.parametrize("content", [None, b"--corpus \xff"])
def test_a_wrong_file_of_arguments_is_one_sentence(tmp_path, content):
    path = tmp_path / "x.args"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="x.args"):
        with_files([f"@{path}"])
