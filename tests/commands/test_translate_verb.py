"""`keras-transformer translate`, with a small random model: senseless words."""

import numpy as np
import pytest
from verb_calls import (
    SOURCES,
    give,
    on_one_line,
    refused,
    replace_translator,
    rows_of,
    run,
    write_lines,
)

from keras_transformer.commands.translate import rows_out
from keras_transformer.config import Sampling, Search
from keras_transformer.run import Run
from keras_transformer.translation import unfinished
from keras_transformer.translation.translator import Hypothesis


@pytest.fixture
def translated(run_dir, source_file, capsysbinary):
    """Translates the file with some flags; returns the lines written."""

    def call(*flags):
        assert run("translate", run_dir, "--input", source_file, *flags) == 0
        return rows_of(capsysbinary)

    return call


@pytest.mark.stands_for("searches of the verb translate")
def test_every_line_of_standard_input_gets_its_line(
    run_dir, translator, monkeypatch, capsysbinary
):
    # A "\r" before the end is no text; the last line needs no end.
    content = "\r\n".join(SOURCES).encode()
    give(monkeypatch, content)

    assert run("translate", run_dir) == 0

    expected = [on_one_line(x) for x in translator.translate(SOURCES)]
    assert rows_of(capsysbinary) == expected
    assert expected[2] == expected[5] == ""
    # Eight sources, two of them blank and two alike.
    assert len(set(expected)) == 6
    give(monkeypatch, b"")
    assert run("translate", run_dir) == 0
    assert rows_of(capsysbinary) == []


@pytest.mark.stands_for("searches of the verb translate")
def test_files_take_the_place_of_the_standard_streams(
    run_dir, translator, source_file, tmp_path, capsys
):
    output = tmp_path / "target.de"

    code = run(
        *("translate", run_dir, "--input", source_file, "--output", output),
        *("--beam-size", 2, "--length-penalty", 0.3, "--average", 1),
        *("--min-length", 5, "--max-length", 11),
    )

    newest = Run(run_dir).translator(average=1)
    expected = newest.translate(
        SOURCES, beam_size=2, length_penalty=0.3, min_length=5, max_length=11
    )
    assert code == 0
    assert capsys.readouterr().out == ""
    written = output.read_bytes().decode().split("\n")
    assert written == [*map(on_one_line, expected), ""]
    assert sorted(tmp_path.iterdir()) == [source_file, output]
    # Neither the checkpoint nor the options were ignored.
    assert written[:-1] != [
        on_one_line(text) for text in translator.translate(SOURCES)
    ]


def test_the_options_of_translate_reach_the_search(translated, monkeypatch):
    given = replace_translator(monkeypatch)

    # More than there are beams.
    flags = ("--sample", "--seed", 5, "--n-best", 13, "--prefix", "Ein")
    translated(*flags, "--parallel", 3)

    sampling = Sampling(seed=5)
    assert given == dict(
        search=Search(n_best=13, max_source_length=256, sampling=sampling),
        prefixes=("Ein",) * len(SOURCES),
        parallel=3,
    )


def test_cells_whose_sentences_are_translated_one_by_one_stay_apart():
    found = [[Hypothesis("x\ty\nz", -0.5)]]
    asked = None, ("a\tb",), found, 1, Search(), False
    assert [*rows_out(*asked, True)] == [b"x\ty z\n"]
    assert [*rows_out(*asked, False)] == [b"x y z\n"]


def test_sentences_of_a_line_are_translated_one_by_one(
    run_dir, translator, tmp_path, capsysbinary, caplog
):
    source = tmp_path / "source.en"
    write_lines(source, ["The dog of Mr. Cat.  Why?", "", "A dog. Barks."])
    short = ("--beam-size", 1, "--max-length", 7)  # So that it is soon traced.
    given = (source,)  # As `--input` takes it.
    assert run("translate", run_dir, *given, "--split-sentences", *short) == 0
    assert "several sentences" not in caplog.text
    texts = ["The dog of Mr. Cat.", "Why?", "A dog.", "Barks."]
    found = translator.translate(texts, beam_size=1, max_length=7)
    one, two, three, four = map(on_one_line, found)
    assert rows_of(capsysbinary) == [f"{one}  {two}", "", f"{three} {four}"]
    # Signs too, if asked for.
    write_lines(source, ["?!"])
    whole = "--no-split-sentences"
    assert run("translate", run_dir, *given, whole, *short) == 0
    asked = dict(split_sentences=False, beam_size=1, max_length=7)
    (said,) = translator.translate(["?!"], **asked)
    assert said != "?!" and rows_of(capsysbinary) == [on_one_line(said)]


def test_an_alignment_follows_its_translation(translated, translator):
    rows = translated("--alignment")
    expected = [on_one_line(text) for text in translator.translate(SOURCES)]
    alignments = translator.align(SOURCES, expected)
    pharaoh = [" ".join(f"{s}-{t}" for s, t in pairs) for pairs in alignments]
    both = zip(expected, pharaoh, strict=True)
    assert rows == [f"{text} ||| {pairs}" for text, pairs in both]
    assert rows[2] == " ||| " and alignments[2] == []
    assert all(alignments[row] for row in (0, 1, 4))


@pytest.mark.stands_for("searches of the verb translate")
def test_translations_begin_with_the_prefixes_of_their_lines(
    translated, translator, tmp_path
):
    prefixes = ["Hund"] * len(SOURCES)
    prefixes[1:4] = ["", "der", "die Wiese"]
    write_lines(tmp_path / "prefixes", prefixes)

    rows = translated("--prefixes", tmp_path / "prefixes")

    expected = translator.translate(SOURCES, prefixes=prefixes)
    assert rows == [on_one_line(text) for text in expected]
    for source, prefix, row in zip(SOURCES, prefixes, rows, strict=True):
        assert row.startswith(prefix) if source.strip() else row == ""


def test_as_many_prefixes_as_lines_of_standard_input_are_needed(
    run_dir, tmp_path, monkeypatch, capsys
):
    write_lines(tmp_path / "prefixes", SOURCES[:3])
    # Nobody knows the number of lines.
    give(monkeypatch, b"a dog\n" * 2)
    replace_translator(monkeypatch, lambda texts: [])
    given = ("--prefixes", tmp_path / "prefixes")
    assert "--prefixes" in refused(capsys, "translate", run_dir, *given)


def test_lines_it_cuts_are_named(translated, translator, caplog, monkeypatch):
    monkeypatch.setattr(unfinished, "CHUNK", 3)
    lengths = translator.tokenizer.tokenize(SOURCES).row_lengths().numpy()
    longest = int(np.sort(lengths)[-3])
    cut = [i for i, length in enumerate(lengths, 1) if length > longest]

    translated("--max-length", 3, "--max-source-length", longest)

    assert 0 < len(cut) < 3
    said = [text for text in caplog.messages if "Cut" in text]
    named = [text.rpartition("number ")[2].rstrip(".") for text in said]
    assert [int(x) for text in named for x in text.split(", ")] == cut
    assert all(f"texts after {longest} tokens" in text for text in said)
    caplog.clear()
    translated()
    assert "Cut" not in caplog.text


def test_input_beyond_a_chunk_is_numbered_on(translated, monkeypatch):
    sizes = []

    def translate(texts):
        sizes.append(len(texts))
        # Line ends in a translation are none in the output.
        ends = ("a", "b\n\r\t")
        return [[Hypothesis(text + x, -0.5) for x in ends] for text in texts]

    replace_translator(monkeypatch, translate)
    monkeypatch.setattr(unfinished, "CHUNK", 3)

    assert translated("--n-best", 2) == [
        f"{number}\t-0.5000\t{on_one_line(source + x)}"
        for number, source in enumerate(SOURCES, start=1)
        for x in ("a", "b   ")
    ]
    assert sizes == [3, 3, 2]


def stopped_once(monkeypatch, stop, at):
    """Let the `at`-th chunk of three fail; gets the sizes of all."""
    calls = []

    def translate(texts):
        calls.append(len(texts))
        if len(calls) == at:
            raise stop
        return [[Hypothesis(text.upper(), 0.0)] for text in texts]

    replace_translator(monkeypatch, translate)
    monkeypatch.setattr(unfinished, "CHUNK", 3)
    return calls


@pytest.mark.parametrize(
    "stop, code",
    [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 1)],
)
def test_a_translation_that_is_cut_short_goes_on_at_the_next_start(
    run_dir, source_file, monkeypatch, tmp_path, stop, code
):
    calls = stopped_once(monkeypatch, stop, at=2)
    output, kept = tmp_path / "target.de", tmp_path / "target.de.unfinished"

    files = ("--input", source_file, "--output", output)
    assert run("translate", run_dir, *files) == code
    assert set(tmp_path.iterdir()) == {source_file, kept}
    assert run("translate", run_dir, *files) == 0
    assert set(tmp_path.iterdir()) == {source_file, output}
    assert calls == [3, 3, 3, 2]
    said = output.read_bytes().decode().split("\n")
    assert said == [*(on_one_line(x.upper()) for x in SOURCES), ""]


def test_what_another_search_has_written_is_not_taken_up(
    run_dir, source_file, monkeypatch, tmp_path
):
    output = tmp_path / "target.de"
    calls = stopped_once(monkeypatch, KeyboardInterrupt(), at=3)
    files = ("--input", source_file, "--output", output)
    assert run("translate", run_dir, *files) == 130
    assert run("translate", run_dir, *files, "--beam-size", 2) == 0
    assert calls == [3, 3, 2, 3, 3, 2]
    assert set(tmp_path.iterdir()) == {source_file, output}
