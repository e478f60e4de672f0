"""`python -m keras_transformer`, with a small random model: senseless words."""

import functools
import html
import io
import json
import logging
import pathlib
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import sacrebleu
from run_config import make_run
from small import SIZES, of_rounded_weights

from keras_transformer import __main__, config
from keras_transformer.commands import display
from keras_transformer.commands import translate as translate_verb
from keras_transformer.data import lines
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.decoding.options import Sampling, SearchOptions
from keras_transformer.model import Transformer
from keras_transformer.runs import checkpoints
from keras_transformer.translation import evaluation
from keras_transformer.translation.translator import Hypothesis, Translator

ROOT = pathlib.Path(__file__).parents[2]

ENGLISH = [
    "a small dog runs across the meadow",
    "the dog barks",
    "",
    "the meadow and the small dog and the other dog " * 2,
    "a dog",
]
GERMAN = [
    "ein kleiner Hund läuft über die Wiese",
    "der Hund bellt",
    "die Wiese",
    "die Wiese und der Hund-und-Wiese-Verein und der andere Hund",
    "",
]
# Also what other readers take for line ends: U+0085 and U+2028.
SOURCES = [*ENGLISH, " \t", "the dog\x85and the\u2028dog", "the dog barks"]


def write_lines(path, sentences):
    path.write_bytes("".join(line + "\n" for line in sentences).encode())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "test"):
        write_lines(folder / f"{split}.en", ENGLISH)
        write_lines(folder / f"{split}.de", GERMAN)
    return folder


def draw_weights(model, seed):
    """Weights that answer different sources with different words."""
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        if len(weight.shape) > 1:  # Neither norms nor biases.
            weight.assign(draw.normal(0, 0.5, weight.shape))
    table = model.embedding.table.numpy()
    table[4:260] = 0  # No bytes: they would spell no words.
    model.embedding.table.assign(table)


@pytest.fixture(scope="module")
def run_dir(corpus, tmp_path_factory):
    """A run with two checkpoints."""
    path = tmp_path_factory.mktemp("run")
    tokenizer = Tokenizer.train(ENGLISH + GERMAN, 331, path / "tokenizer.model")
    sizes = {**SIZES, "vocab_size": tokenizer.vocab_size}
    make_run(config.ModelConfig(**sizes), corpus=str(corpus)).save(path)
    model = Transformer(**sizes)
    model.compile(optimizer="sgd", loss="mse")
    for step in (5, 7):
        draw_weights(model, seed=step)
        checkpoints.save_checkpoint(path, model, checkpoints.Progress(step))
    return path


# Loading and tracing take seconds: once for each checkpoint count is enough.
load_once = functools.cache(Translator.from_run)


@pytest.fixture(autouse=True)
def few_loads(monkeypatch):
    monkeypatch.setattr(Translator, "from_run", load_once)


@pytest.fixture(scope="module")
def translator(run_dir):
    return load_once(run_dir, 5)


@pytest.fixture
def source_file(tmp_path):
    path = tmp_path / "source.en"
    write_lines(path, SOURCES)
    return path


def run(verb, run_dir, *more):
    argv = [verb, "--run-dir", *map(str, (run_dir, *more))]
    return __main__.main(argv)


def give(monkeypatch, content):
    """Let standard input hold some bytes."""
    stdin = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stdin)


def replace_translator(monkeypatch, translate):
    """Let a function translate; returns the options that it was given."""
    given = {}

    class Replacement:
        @classmethod
        def from_run(cls, run_dir, average, precision):
            return cls()

        def n_best(self, texts, options, progress, parallel, prefixes=None):
            given.update(options=options, prefixes=prefixes, parallel=parallel)
            return translate(texts), [False] * len(texts)

    monkeypatch.setattr(
        "keras_transformer.translation.translator.Translator", Replacement
    )
    return given


def on_one_line(text):
    for end in "\n\r\t":
        text = text.replace(end, " ")
    return text


@pytest.mark.slow
def test_every_line_of_standard_input_gets_its_line(
    run_dir, translator, monkeypatch, capsysbinary
):
    # A "\r" before the end is no text; the last line needs no end.
    content = "\r\n".join(SOURCES).encode()
    give(monkeypatch, content)

    assert run("translate", run_dir) == 0

    expected = [on_one_line(x) for x in translator.translate(SOURCES)]
    written = capsysbinary.readouterr().out.decode()
    assert written.split("\n") == [*expected, ""]
    assert expected[2] == expected[5] == ""
    # Eight sources, two of them blank and two alike.
    assert len(set(expected)) == 6


def test_files_take_the_place_of_the_standard_streams(
    run_dir, translator, source_file, tmp_path, capsys
):
    output = tmp_path / "target.de"

    code = run(
        *("translate", run_dir, "--input", source_file, "--output", output),
        *("--beam-size", 2, "--length-penalty", 0.3, "--average", 1),
        *("--min-length", 5, "--max-length", 11),
    )

    newest = load_once(run_dir, 1)
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


def test_the_options_of_translate_reach_the_search(
    run_dir, source_file, monkeypatch
):
    given = replace_translator(
        monkeypatch, lambda texts: [[Hypothesis("a", 0.0)]] * len(texts)
    )

    code = run(
        *("translate", run_dir, "--input", source_file, "--beam-size", 7),
        *("--length-penalty", 0.3, "--n-best", 2, "--min-length", 5),
        *("--max-length", 11, "--max-source-length", 13, "--no-unknown"),
        *("--no-repeat-ngram", 3, "--prefix", "Ein", "--parallel", 3),
    )

    assert code == 0
    assert given == dict(
        options=SearchOptions(
            beam_size=7,
            length_penalty=0.3,
            n_best=2,
            min_length=5,
            max_length=11,
            max_source_length=13,
            no_unknown=True,
            no_repeat_ngram=3,
        ),
        prefixes=("Ein",) * len(SOURCES),
        parallel=3,
    )


def test_the_options_of_sampling_reach_the_search(
    run_dir, source_file, monkeypatch
):
    given = replace_translator(
        monkeypatch, lambda texts: [[Hypothesis("a", 0.0)]] * len(texts)
    )

    code = run(
        *("translate", run_dir, "--input", source_file, "--sample"),
        *("--temperature", 0.7, "--top-k", 11, "--top-p", 0.9, "--seed", 5),
        *("--n-best", 13),  # More than there are beams.
    )

    assert code == 0
    assert given["options"] == SearchOptions(
        n_best=13,
        max_source_length=256,
        sampling=Sampling(temperature=0.7, top_k=11, top_p=0.9, seed=5),
    )
    assert given["prefixes"] is None
    assert given["parallel"] is None  # For the translator to choose.


def test_only_line_feeds_end_lines():
    content = "é\r\nb\x85\u2028c\x0b\n\n\rd\re".encode()

    found = list(lines.read_lines(io.BytesIO(content), "here"))

    assert found == ["é", "b\x85\u2028c\x0b", "", "\rd\re"]


def test_no_input_gives_no_output(run_dir, monkeypatch, capsysbinary):
    give(monkeypatch, b"")

    assert run("translate", run_dir) == 0
    assert capsysbinary.readouterr().out == b""


def test_n_best_names_the_line_and_the_score(
    run_dir, translator, source_file, capsysbinary
):
    code = run("translate", run_dir, "--input", source_file, "--n-best", 3)

    rows = [
        row.split("\t")
        for row in capsysbinary.readouterr().out.decode().split("\n")[:-1]
    ]
    expected = [
        (str(number), hypothesis)
        for number, found in enumerate(
            translator.translate(SOURCES, n_best=3), start=1
        )
        for hypothesis in found
    ]
    assert code == 0
    assert [(number, text) for number, _, text in rows] == [
        (number, on_one_line(hypothesis.text))
        for number, hypothesis in expected
    ]
    np.testing.assert_allclose(
        [float(score) for _, score, _ in rows],
        [hypothesis.score for _, hypothesis in expected],
        atol=1e-4,
    )
    # Two lines are blank: one translation each.
    assert len(rows) == 3 * (len(SOURCES) - 2) + 2


def test_translate_computes_in_bfloat16_when_asked(
    run_dir, translator, source_file, capsysbinary
):
    model = of_rounded_weights(
        translator.model, ml_dtypes.bfloat16, "mixed_bfloat16"
    )
    mixed = Translator(model, translator.tokenizer)
    best = [found[0] for found in mixed.translate(SOURCES, n_best=2)]

    code = run(
        *("translate", run_dir, "--input", source_file, "--n-best", 2),
        *("--precision", "bfloat16"),
    )

    rows = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    first = {}
    for row in rows:
        number, score, text = row.split("\t")
        first.setdefault(int(number), (float(score), text))
    assert code == 0
    found = [first[number + 1] for number in range(len(SOURCES))]
    assert [text for _, text in found] == [
        on_one_line(hypothesis.text) for hypothesis in best
    ]
    scores = np.array([score for score, _ in found])
    np.testing.assert_allclose(scores, [h.score for h in best], rtol=1e-3)
    whole = [
        found[0].score for found in translator.translate(SOURCES, n_best=2)
    ]
    assert np.abs(scores - whole).max() > 1e-3


def pharaoh(pairs):
    return " ".join(f"{source}-{target}" for source, target in pairs)


def test_an_alignment_follows_its_translation(
    run_dir, translator, source_file, capsysbinary
):
    code = run("translate", run_dir, "--input", source_file, "--alignment")

    rows = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    expected = [on_one_line(text) for text in translator.translate(SOURCES)]
    alignments = translator.align(SOURCES, expected)
    assert code == 0
    assert rows == [
        f"{text} ||| {pharaoh(pairs)}"
        for text, pairs in zip(expected, alignments, strict=True)
    ]
    assert rows[2] == " ||| " and alignments[2] == []
    assert all(alignments[row] for row in (0, 1, 4))


def test_with_n_best_the_alignment_is_the_fourth_column(
    run_dir, translator, source_file, capsysbinary
):
    code = run(
        *("translate", run_dir, "--input", source_file, "--alignment"),
        *("--n-best", 2, "--sample", "--seed", 3, "--max-length", 7),
    )

    rows = [
        row.split("\t")
        for row in capsysbinary.readouterr().out.decode().split("\n")[:-1]
    ]
    assert code == 0
    assert [row[0] for row in rows[:5]] == ["1", "1", "2", "2", "3"]
    for number, _, text, pairs in rows:
        (expected,) = translator.align([SOURCES[int(number) - 1]], [text])
        assert pairs == pharaoh(expected)


@pytest.mark.parametrize("from_file", [False, True])
def test_translations_begin_with_the_prefixes_of_their_lines(
    run_dir, translator, source_file, tmp_path, capsysbinary, from_file
):
    prefixes = ["Hund"] * len(SOURCES)
    flags = ["--prefix", "Hund"]
    if from_file:
        prefixes[1:4] = ["", "der", "die Wiese"]
        write_lines(tmp_path / "prefixes", prefixes)
        flags = ["--prefixes", tmp_path / "prefixes"]

    code = run("translate", run_dir, "--input", source_file, *flags)

    rows = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    expected = translator.translate(SOURCES, prefixes=prefixes)
    assert code == 0
    assert rows == [on_one_line(text) for text in expected]
    for source, prefix, row in zip(SOURCES, prefixes, rows, strict=True):
        assert row.startswith(prefix) if source.strip() else row == ""


def test_as_many_prefixes_as_lines_are_needed(
    run_dir, source_file, tmp_path, monkeypatch, capsys
):
    prefixes = tmp_path / "prefixes"
    write_lines(prefixes, SOURCES[:3])

    both = ["--input", source_file, "--prefixes", prefixes]
    assert run("translate", run_dir, *both) == 2
    assert capsys.readouterr().err == (
        "error: Expected as many lines in --input and --prefixes, received 8 "
        "and 3; align the files.\n"
    )
    # Nobody knows the number of lines on standard input.
    give(monkeypatch, b"a dog\n" * 2)
    replace_translator(monkeypatch, lambda texts: [])
    assert run("translate", run_dir, "--prefixes", prefixes) == 2
    assert capsys.readouterr().err.endswith(
        "error: Expected as many lines in --input and --prefixes, found no "
        "line 3 in standard input; align the files.\n"
    )


def test_lines_that_are_cut_are_named(
    run_dir, translator, source_file, caplog, monkeypatch, capsysbinary
):
    monkeypatch.setattr(lines, "CHUNK_LINES", 3)
    lengths = translator.tokenizer.tokenize(SOURCES).row_lengths().numpy()
    longest = int(np.sort(lengths)[-3])
    cut = [i for i, length in enumerate(lengths, 1) if length > longest]

    code = run(
        *("translate", run_dir, "--input", source_file, "--max-length", 3),
        *("--max-source-length", longest),
    )

    assert code == 0 and 0 < len(cut) < 3
    for number in cut:
        assert f"line {number}" in caplog.text or f", {number}" in caplog.text
    assert f"Cut after {longest} tokens (--max-source-length)" in caplog.text
    capsysbinary.readouterr()
    caplog.clear()
    assert run("translate", run_dir, "--input", source_file) == 0
    assert "Cut" not in caplog.text


def test_a_warning_of_cuts_names_at_most_twenty_lines(caplog):
    translate_verb.warn_of_cuts([True] * 23, first=101, longest=7)
    assert caplog.messages == [
        "Cut after 7 tokens (--max-source-length): lines "
        f"{', '.join(map(str, range(101, 121)))} and 3 more."
    ]


def test_sentences_of_a_line_are_translated_one_by_one(
    run_dir, tmp_path, monkeypatch, capsysbinary
):
    source = tmp_path / "source.en"
    write_lines(
        source,
        [
            "Dr. Dog met Mr. Cat. They ran, e.g. across the meadow!  Why?",
            "",
            "no end",
            "One. Two.",
        ],
    )
    given = []

    def translate(texts):
        given.extend(texts)
        return [[Hypothesis(f"<{text}>", -0.5)] for text in texts]

    replace_translator(monkeypatch, translate)

    code = run("translate", run_dir, "--input", source, "--split-sentences")

    assert code == 0

    # The sentences and their number are those of a reader.
    assert given == [
        "Dr. Dog met Mr. Cat.",
        "They ran, e.g. across the meadow!",
        "Why?",
        "no end",
        "One.",
        "Two.",
    ]
    assert capsysbinary.readouterr().out.decode().split("\n") == [
        "<Dr. Dog met Mr. Cat.> <They ran, e.g. across the meadow!> <Why?>",
        "",
        "<no end>",
        "<One.> <Two.>",
        "",
    ]


def test_score_prints_what_the_search_found(
    run_dir, translator, source_file, tmp_path, capsysbinary, monkeypatch
):
    monkeypatch.setattr(lines, "CHUNK_LINES", 3)
    target = tmp_path / "target.de"
    texts = [GERMAN[i % len(GERMAN)] for i in range(len(SOURCES))]
    write_lines(target, texts)

    code = run(
        *("score", run_dir, "--source", source_file, "--target", target),
        *("--length-penalty", 0.9),
    )

    found = [float(row) for row in capsysbinary.readouterr().out.split()]
    expected = translator.score(SOURCES, texts, length_penalty=0.9)
    assert code == 0
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_score_writes_over_nothing(run_dir, source_file, tmp_path, capsys):
    texts = ["--source", source_file, "--target", source_file]
    before = source_file.read_bytes()
    assert run("score", run_dir, *texts, "--output", source_file) == 2
    assert "Expected a new file as --output" in capsys.readouterr().err
    assert source_file.read_bytes() == before


def test_score_needs_two_texts_of_one_length(
    run_dir, source_file, tmp_path, capsys
):
    target = tmp_path / "target.de"
    target.write_text("eins\n")
    texts = ["--source", source_file, "--target", target]
    assert run("score", run_dir, *texts) == 2
    assert "in --source and --target, received 8 and 1" in (
        capsys.readouterr().err
    )
    texts[1] = tmp_path / "none"
    assert run("score", run_dir, *texts) == 2
    assert "can be read as --source" in capsys.readouterr().err
    assert run("score", run_dir, *texts, "--length-penalty", -1) == 2
    assert (
        "Expected --length-penalty to be at least 0" in capsys.readouterr().err
    )


@pytest.mark.parametrize("chunk_lines", [1, 3, 8])
def test_input_beyond_a_chunk_is_numbered_on(
    run_dir, source_file, monkeypatch, capsysbinary, chunk_lines
):
    sizes = []

    def translate(texts):
        sizes.append(len(texts))
        return [[Hypothesis(text.upper(), -0.5)] * 2 for text in texts]

    replace_translator(monkeypatch, translate)
    monkeypatch.setattr(lines, "CHUNK_LINES", chunk_lines)

    code = run("translate", run_dir, "--input", source_file, "--n-best", 2)

    expected = [
        f"{number}\t-0.5000\t{on_one_line(source.upper())}\n"
        for number, source in enumerate(SOURCES, start=1)
        for _ in range(2)
    ]
    assert code == 0
    assert capsysbinary.readouterr().out.decode() == "".join(expected)
    assert max(sizes) == chunk_lines and sum(sizes) == len(SOURCES)


def test_a_translation_that_holds_line_ends_stays_on_its_line(
    run_dir, source_file, monkeypatch, capsysbinary
):
    replace_translator(
        monkeypatch, lambda texts: [[Hypothesis("a\nb\r\tc", 0.0)]] * len(texts)
    )

    assert run("translate", run_dir, "--input", source_file) == 0

    assert capsysbinary.readouterr().out == b"a b  c\n" * len(SOURCES)


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device"), 1),
        (PermissionError(13, "Permission denied"), 2),
    ],
)
def test_a_translation_that_is_cut_short_leaves_no_file(
    run_dir, source_file, monkeypatch, tmp_path, stop, code
):
    calls = []

    def translate(texts):
        calls.append(texts)
        if len(calls) == 2:
            raise stop
        return [[Hypothesis("done", 0.0)]] * len(texts)

    replace_translator(monkeypatch, translate)
    monkeypatch.setattr(lines, "CHUNK_LINES", 3)
    output = tmp_path / "target.de"

    stopped = run(
        "translate", run_dir, "--input", source_file, "--output", output
    )

    assert stopped == code
    assert list(tmp_path.iterdir()) == [source_file]


def test_view_writes_one_page_with_every_text_and_its_translations(
    run_dir, translator, tmp_path, capsys
):
    texts = ["the dog barks", "a <small> dog"]
    output = tmp_path / "page.html"

    flags = ("--beam-size", 3, "--n-best", 2, "--max-length", 7)
    assert run("view", run_dir, *texts, "--output", output, *flags) == 0

    page = output.read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "a &lt;small&gt; dog" in page and "<small>" not in page
    expected = translator.translate(texts, n_best=2, beam_size=3, max_length=7)
    for hypotheses in expected:
        for text, score in hypotheses:
            assert html.escape(text) in page
            assert f"{score:.4f}" in page
    before = page
    assert run("view", run_dir, "the dog", "--output", output) == 2
    assert "Expected a new file as --output" in capsys.readouterr().err
    assert output.read_text("utf-8") == before


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--beam-size", 0],
            "Expected --beam-size to be at least 1, received --beam-size 0",
        ),
        (["--average", 0], "Expected --average of at least 1, received 0"),
        (
            ["--length-penalty", -0.1],
            "Expected --length-penalty to be at least 0 and finite, received "
            "--length-penalty -0.1",
        ),
        (
            ["--length-penalty", "nan"],
            "Expected --length-penalty to be at least 0 and finite, received "
            "--length-penalty nan",
        ),
        (
            ["--parallel", 0],
            "Expected --parallel to be at least 1, received --parallel 0",
        ),
        (
            ["--parallel", -1],
            "Expected --parallel to be at least 1, received --parallel -1",
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
            "Expected --n-best to be from 1 to --beam-size, received "
            "--n-best 5, --beam-size 4",
        ),
        (
            ["--max-length", 5, "--min-length", 7],
            "Expected --max-length to be at least --min-length, received "
            "--max-length 5, --min-length 7",
        ),
        (
            ["--sample", "--top-p", 0],
            "Expected --top-p to be above 0 and at most 1, received "
            "--top-p 0.0",
        ),
        (
            ["--top-k", 5],
            "Expected --sample beside --top-k, received --top-k alone; add "
            "--sample or leave it out",
        ),
        (
            ["--split-sentences", "--n-best", 2],
            "Expected --split-sentences without --n-best above 1, received "
            "both; leave one out",
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
        f"{tmp_path}/config.json; train one with train.py --run-dir "
        f"{tmp_path}.\n"
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
        f"error: {copy} has no checkpoint yet; run train.py --run-dir {copy} "
        "until it has written one.\n"
    )
    assert not (copy / "evaluation").exists()


def test_evaluate_scores_what_it_writes_with_sacrebleu(
    run_dir, translator, tmp_path, capsys
):
    copy_of_report = tmp_path / "copy.json"

    assert run("evaluate", run_dir, "--json", copy_of_report) == 0

    text = (run_dir / "evaluation" / "test.de.txt").read_bytes().decode()
    translations = text.split("\n")[:-1]
    bleu = sacrebleu.corpus_bleu(translations, [GERMAN])
    chrf = sacrebleu.corpus_chrf(translations, [GERMAN])
    paper = evaluation.compound_split_bleu(translations, GERMAN)
    assert translations == [
        on_one_line(text) for text in translator.translate(ENGLISH)
    ]
    report = json.loads((run_dir / "evaluation" / "test.json").read_text())
    values = {name: s["value"] for name, s in report["scores"].items()}
    assert values == pytest.approx(
        {
            "bleu": bleu.score,
            "chrf": chrf.score,
            "compound_split_bleu": paper.value,
        }
    )
    version = f"version:{sacrebleu.__version__}"
    assert capsys.readouterr().out == (
        f"{bleu.score:6.2f}  BLEU  nrefs:1|case:mixed|eff:no|tok:13a|"
        f"smooth:exp|{version}\n"
        f"{chrf.score:6.2f}  chrF2  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|"
        f"space:no|{version}\n"
        f"{paper.value:6.2f}  BLEU, tokenised, compounds split, as in the "
        f"paper  {paper.signature}\n"
    )
    assert json.loads(copy_of_report.read_text()) == report


def test_the_report_of_evaluate_says_how_it_came_about(run_dir, corpus):
    code = run(
        *("evaluate", run_dir, "--split", "train", "--average", 1),
        *("--beam-size", 3, "--length-penalty", 0.9),
        *("--precision", "bfloat16"),
    )

    report = json.loads((run_dir / "evaluation" / "train.json").read_text())
    assert code == 0
    expected = {
        "corpus": str(corpus),
        "split": "train",
        "source_lang": "en",
        "target_lang": "de",
        "beam_size": 3,
        "length_penalty": 0.9,
        "precision": "bfloat16",
        "checkpoints": ["step-000000007"],
        "sentences": len(ENGLISH),
    }
    assert {name: report[name] for name in expected} == expected


def test_evaluate_scores_lower_cased_text_when_asked(run_dir, capsys):
    assert run("evaluate", run_dir, "--lowercase") == 0

    text = (run_dir / "evaluation" / "test.de.txt").read_bytes().decode()
    bleu = sacrebleu.corpus_bleu(
        text.split("\n")[:-1], [GERMAN], lowercase=True
    )
    assert f"{bleu.score:6.2f}  BLEU, lower-cased  nrefs:1|case:lc|" in (
        capsys.readouterr().out
    )


def test_evaluating_again_takes_the_place_of_the_results(
    run_dir, corpus, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    write_lines(other / "test.en", ENGLISH[:2])
    write_lines(other / "test.de", GERMAN[:2])
    folder = run_dir / "evaluation"

    assert run("evaluate", run_dir) == 0
    assert run("evaluate", run_dir, "--corpus", other) == 0

    report = json.loads((folder / "test.json").read_text())
    assert report["corpus"] == str(other) and report["sentences"] == 2
    assert (folder / "test.de.txt").read_bytes().count(b"\n") == 2
    assert not list(folder.glob(".*"))


def test_an_evaluation_that_fails_keeps_the_results_before_it(
    run_dir, monkeypatch
):
    folder = run_dir / "evaluation"
    assert run("evaluate", run_dir) == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "evaluate", interrupt)

    assert run("evaluate", run_dir) == 130
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("split", "sides", "message"),
    [
        ("dev", {}, "it has: test, train; name one of them with --split."),
        ("bad", {"en": b"a\nb\n", "de": b"a\n"}, "found 2 in"),
        ("bad", {"en": b"", "de": b""}, "found both files empty"),
        ("bad", {"en": b"a\nb\n", "de": b"a\n\xff\n"}, "in line 2"),
    ],
)
def test_a_split_that_is_wrong_is_an_error(
    run_dir, corpus, tmp_path, capsys, split, sides, message
):
    copy = tmp_path / "copy"
    shutil.copytree(corpus, copy)
    for language, content in sides.items():
        (copy / f"{split}.{language}").write_bytes(content)

    code = run("evaluate", run_dir, "--corpus", copy, "--split", split)

    error = capsys.readouterr().err
    assert code == 2
    assert error.startswith("error: Expected") and error.count("\n") == 1
    assert message in error


def test_a_corpus_that_is_not_there_is_an_error(run_dir, capsys):
    assert run("evaluate", run_dir, "--corpus", "nowhere") == 2
    assert "received nowhere, which is no folder" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_known_at_once(
    run_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(evaluation, "evaluate", None)  # Never called.

    assert run("evaluate", run_dir, "--json", tmp_path) == 2
    assert capsys.readouterr().err == (
        f"error: Expected the name of a file, but {tmp_path} is a folder; "
        "choose another name.\n"
    )
    assert run("evaluate", run_dir, "--json", tmp_path / "no" / "it.json") == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_log_tells_the_time_that_is_left(caplog, monkeypatch):
    clock = iter([100.0, 150.0, 155.0, 250.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(clock))

    with (
        caplog.at_level(logging.INFO, "keras_transformer"),
        display.SentenceDisplay(total=300) as progress,
    ):
        progress(50, 100)  # 50 s: a line.
        progress(60, 100)  # 5 s after it: none.
        progress.end_chunk(100)  # 100 s after it: a line.

    # 50 sentences in 50 s, then 100 in 150 s.
    assert caplog.messages == [
        "50 of 300 sentences, 0:04:10 left",
        "100 of 300 sentences, 0:05:00 left",
    ]


def test_a_log_without_a_total_counts_over_chunks(caplog):
    with (
        caplog.at_level(logging.INFO, "keras_transformer"),
        display.SentenceDisplay(total=None, seconds=0.0) as progress,
    ):
        progress.end_chunk(11)
        progress(2, 11)

    assert caplog.messages == ["11 sentences", "13 sentences"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("bar", "shown"), [(True, True), (False, False)])
def test_a_terminal_shows_a_bar_unless_it_shows_the_results(
    monkeypatch, bar, shown
):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())

    with display.SentenceDisplay(total=23, bar=bar) as progress:
        progress(11, 13)

    drawn = sys.stderr.getvalue()
    assert ("11/23" in drawn) == ("time left" in drawn) == shown


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
    assert b"Averaging 2 checkpoints instead of 5" in done.stderr


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
