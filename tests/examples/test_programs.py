"""The examples that are a program each; a corpus through Apache Beam."""

import re
import runpy

import pytest
from programs import python
from project_table import ROOT


@pytest.mark.example
def test_the_one_that_asks_a_saved_model_prints_what_it_translates(
    exported, small_translator
):
    text = "a small dog runs"
    output = python("examples/ask_saved_model.py", exported, text).stdout
    (expected,) = small_translator.translate(
        [text], beam_size=5, length_penalty=0.9
    )
    assert output == f"{expected}\n"


@pytest.mark.example
def test_the_one_of_own_data_learns_to_translate_digits():
    main = runpy.run_path(f"{ROOT}/examples/own_data.py")["main"]
    assert main() == ["drei eins vier", "eins fünf neun"]


SCRIPT = ROOT / "examples/beam/translate_corpus.py"
WORDS = "ein kleiner Hund läuft über die grüne Wiese und bellt laut".split()


def sentences(count):
    """Rows of 1 to 11 words, no two alike in a row."""
    turned = ((WORDS[i % 11 :] + WORDS, 1 + i * 7 % 11) for i in range(count))
    return [" ".join(words[:number]) for words, number in turned]


@pytest.mark.example
def test_shards_come_back_from_two_processes(exported, served, tmp_path):
    shards = {
        # The longest source of this model has 11 pieces.
        "a": ["ein Hund", "", "kleiner " * 30, "ein\tHund", " "],
        "b": [],
        "c": sentences(61),
    }
    for name, rows in shards.items():
        text = "".join(f"{row}\r\n" for row in rows).encode()
        if name == "a":
            text += b"Hund \xff\xfe\nlaut\x00bellt\n"
        (tmp_path / f"in-{name}.txt").write_bytes(
            text.removesuffix(b"\r\n") if name == "c" else text
        )

    done = python(
        *(SCRIPT, "--model", exported, "--threads", "1"),
        *("--input", tmp_path / "in-*.txt", "--output", tmp_path / "out"),
        *("--batch-size", "5", "--block-lines", "13"),
        *("--direct_running_mode", "multi_processing"),
        *("--direct_num_workers", "2"),
        check=False,
    )

    assert done.returncode == 0, done.stderr
    outputs = sorted(path for path in tmp_path.glob("out*"))
    assert [path.name for path in outputs] == [
        f"out-{k:05d}-of-00003.tsv" for k in range(3)
    ]
    for (name, rows), path in zip(shards.items(), outputs, strict=True):
        written = path.read_bytes().decode().split("\n")
        assert written.pop() == ""
        answers = [row.split("\t") for row in written]
        if name == "a":
            assert answers.pop(5) == ["", "-inf"]
            rows = [*rows, "laut\0bellt"]
            assert answers[1] == answers[4] == ["", "0.0000"]
        assert len(answers) == len(rows)
        if rows:
            expected = served("serving_default", text=[*map(str.encode, rows)])
            texts = [text.decode() for text in expected["translation"]]
            assert [text for text, _ in answers] == texts
            scores = [float(score) for _, score in answers]
            assert scores == pytest.approx(expected["score"], abs=1e-4)
    counts = dict(line.split("\t") for line in done.stdout.splitlines())
    assert int(counts.pop("truncated")) >= 1
    assert counts == dict(rows="68", blank="2", not_utf8="1", refused="0")
    loaded = re.findall(r"Process (\d+) has loaded", done.stderr)
    assert len(loaded) == len(set(loaded)) == 2
