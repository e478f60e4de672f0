"""Paired tests against sacreBLEU's own command, and what cannot be compared."""

import json
import random
import re
import subprocess
import sys

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest
from sample_runs import TINY, make_run

from keras_transformer.config import UserError
from keras_transformer.data.corpora import open_corpus
from keras_transformer.translation.significance import (
    compare,
    comparison,
    read_translations,
)

WORDS = "ein Hund läuft über die grüne Wiese und bellt heute laut".split()
NAMES = [
    ("BLEU", "paired bootstrap"),
    ("BLEU", "paired approximate randomization"),
    ("chrF2", "paired bootstrap"),
    ("chrF2", "paired approximate randomization"),
]


def sentences(seed, wrong=0.0, count=43):
    """The same sentences for every seed, with a share of wrong words."""
    text, errors = random.Random(0), random.Random(seed)
    return [
        " ".join(
            errors.choice(WORDS) if errors.random() < wrong else word
            for word in text.choices(WORDS, k=11)
        )
        for _ in range(count)
    ]


REFERENCES = sentences(0)
GOOD, OTHER = sentences(1, 0.3), sentences(2, 0.3)


def digits(value):
    return f"{value:.4f}"


def figures(tested):
    found = (tested.score, tested.mean, tested.confidence)
    return [digits(value) for value in found if value is not None]


def test_every_test_is_that_of_sacrebleus_command(tmp_path):
    names = {"reference": REFERENCES, "other": OTHER, "system": GOOD}
    for name, lines in names.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    command = ["-m", "sacrebleu", "reference", "-i", "other", "system"]
    command += ["-m", "bleu", "chrf", "-w", "4", "--format", "text"]

    found = compare(GOOD, OTHER, [REFERENCES])

    assert [(each.metric, each.test) for each in found] == NAMES
    for flag, of_test in (
        ("--paired-bs", found[::2]),
        ("--paired-ar", found[1::2]),
    ):
        done = subprocess.run(
            [sys.executable, *command, flag],
            cwd=tmp_path,
            capture_output=True,
            check=True,
            text=True,
        )
        # A row for each system, and one for the p-values.
        table = done.stdout.partition("╘")[0]
        assert re.findall(r"\d+\.\d{4}", table) == [
            *(x for each in of_test for x in figures(each.other)),
            *(x for each in of_test for x in figures(each.system)),
            *(digits(each.system.p_value) for each in of_test),
        ]
        for each in of_test:
            assert each.signature in done.stdout
            assert 0.05 < each.system.p_value < 1


def test_every_reference_is_compared_with():
    references = [REFERENCES, sentences(4, 0.2)]
    metrics = {"BLEU": sacrebleu.BLEU(), "chrF2": sacrebleu.CHRF()}
    systems = [("other", OTHER), ("system", GOOD)]
    signatures, results = PairedTest(systems, metrics, references, "bs")()

    found = compare(GOOD, OTHER, references)[::2]

    assert [each.metric for each in found] == ["BLEU", "chrF2"]
    for each in found:
        _, system = results[each.metric]
        assert each.system.p_value == system.p_value
        assert each.signature == str(signatures[each.metric])
        assert each.signature.startswith("nrefs:2|")


def evaluated(run_dir, lines=("eins", "zwei"), corpus="demo", target="de"):
    """A run directory as `evaluate` leaves it."""
    run_dir.mkdir()
    make_run(TINY, target_lang=target).save(run_dir)
    (run_dir / "evaluation").mkdir()
    report = run_dir / "evaluation" / "test.json"
    report.write_text(json.dumps({"corpus": corpus}))
    text = run_dir / "evaluation" / f"test.{target}.txt"
    text.write_text("".join(f"{line}\n" for line in lines))
    return run_dir


def read(against, corpus="demo", split="test"):
    return read_translations(against, corpus, split, "de", 2)


def test_a_run_gives_what_it_has_translated_and_a_file_its_lines(tmp_path):
    run_dir = evaluated(tmp_path / "run")
    assert read(run_dir) == ["eins", "zwei"]
    path = tmp_path / "lines.txt"
    path.write_bytes("eins\r\n\u2028\n".encode())
    assert read(path) == ["eins", "\u2028"]


def test_another_system_may_be_a_list_of_its_translations():
    assert read(["eins", "zwei"]) == ["eins", "zwei"]
    with pytest.raises(UserError, match="2 texts as `against`.*, found 1; gi"):
        read(["eins"])


def test_the_report_of_a_list_names_no_file():
    corpus = open_corpus(
        {"test": [("one", "eins")]}, source_lang="en", target_lang="de"
    )
    pairs = list(corpus.pairs("test", "split"))
    scoring, report = comparison(corpus, "test", pairs, None, ["ein"])
    assert scoring["against"] == ["ein"]
    assert report["against"] == "a list of texts"


def test_a_run_may_spell_the_language_in_another_way(tmp_path):
    run_dir = evaluated(tmp_path / "run", target="deu")
    assert read(run_dir) == ["eins", "zwei"]


def test_a_corpus_is_known_by_its_place(tmp_path, monkeypatch):
    run_dir = evaluated(tmp_path / "run", corpus=str(tmp_path / "text"))
    monkeypatch.chdir(tmp_path)
    assert read(run_dir, "text") == ["eins", "zwei"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "a run directory or a file .*, found nothing at"),
        (lambda path: path.mkdir(), "Expected a run directory with a config"),
        (
            lambda path: path.write_text("eins\n"),
            "2 lines in .*, found 1; give",
        ),
        (lambda path: evaluated(path, "abc"), "2 lines in .*, found 3; give"),
        (lambda path: path.write_bytes(b"a\n\xff\n"), "UTF-8 text in .*line 2"),
        (
            lambda path: evaluated(path, target="fr"),
            "translates into de, but .* translates into fr; give another one",
        ),
        (
            lambda path: evaluated(path, corpus="tfds:ted"),
            "an evaluation of demo in .*test.json, found one of tfds:ted",
        ),
        (
            lambda path: (evaluated(path) / "evaluation/test.json").unlink(),
            "found none; first run: keras-transformer evaluate --run-dir ",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(tmp_path, make, message):
    make(tmp_path / "other")
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path / "other")
    assert str(error.value).count(". ") == 0
