"""A verb reads the configuration of a run once, and hands it on."""

import pytest
from verb_calls import ENGLISH, run, write_lines

from keras_transformer.runs.run_config import RunConfig


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
