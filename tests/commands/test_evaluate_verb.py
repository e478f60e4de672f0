"""`keras-transformer evaluate`: scores, reports, and what it refuses."""

import json
import os
import shlex
import shutil
import sys
from unittest import mock

import pytest
import sacrebleu
from programs import python
from verb_calls import ENGLISH, GERMAN, on_one_line, refused, run, write_lines

from keras_transformer.commands import evaluate
from keras_transformer.run import Run
from keras_transformer.translation import evaluation


def lines_of(path):
    return path.read_bytes().decode().split("\n")[:-1]


def report_of(run_dir, name):
    return json.loads(
        (run_dir / "evaluation" / name / "scores.json").read_text()
    )


@pytest.mark.stands_for("evaluations by the verb")
def test_evaluate_scores_what_it_writes(run_dir, translator, capsys):
    assert run("evaluate", run_dir) == 0

    folder = run_dir / "evaluation" / "test"
    translations = lines_of(folder / "translation.txt")
    bleu = sacrebleu.corpus_bleu(translations, [GERMAN])
    chrf = sacrebleu.corpus_chrf(translations, [GERMAN])
    paper = evaluation.compound_split_bleu(translations, GERMAN)
    expected = translator.translate(ENGLISH)
    assert translations == [*map(on_one_line, expected)]
    assert lines_of(folder / "source.txt") == ENGLISH
    assert lines_of(folder / "reference.txt") == GERMAN
    report = report_of(run_dir, "test")
    tokens = translator.tokenizer.target.tokenize(expected).values
    assert (report["sentences"], report["target_tokens"]) == (5, len(tokens))
    assert report["seconds"] > 0
    scores = report["scores"]
    values = {name: score["value"] for name, score in scores.items()}
    expected = [bleu.score, chrf.score, paper.value]
    names = ["bleu", "chrf", "compound_split_bleu"]
    assert values == pytest.approx(dict(zip(names, expected, strict=True)))
    rows = capsys.readouterr().out.splitlines()
    for row, value, name in zip(rows, expected, names, strict=True):
        assert row.startswith(f"{value:6.2f}  ")
        assert row.endswith(f"  {scores[name]['signature']}")

    assert run("evaluate", run_dir, "--lowercase") == 0
    assert "BLEU, lower-cased, tokenised  nrefs:1|" in capsys.readouterr().out


@pytest.mark.slow
def test_sacrebleus_own_command_compares_two_evaluations(
    run_dir, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", "keras_transformer")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("evaluate", run_dir) == 0
    (said,) = [x for x in caplog.messages if x.startswith("Next: ")]
    other = shutil.copytree(run_dir / "evaluation", tmp_path / "evaluation")
    write_lines(other / "test" / "translation.txt", GERMAN)
    words = shlex.split(said.removeprefix("Next: "))
    command = [word.replace("RUN/", f"{tmp_path}/") for word in words]
    found = python("-m", *command).stdout
    scores = report_of(run_dir, "test")["scores"]
    for name in ("bleu", "chrf"):
        assert f" {scores[name]['value']:.1f} (" in found
    assert " 100.0 (" in found and "(p = " in found


@pytest.mark.parametrize("name", ["13a", "zh", "char", "ja-mecab", "ko-mecab"])
def test_the_flag_of_a_tokeniser_is_found_in_its_signature(name):
    bleu = sacrebleu.BLEU(tokenize=name)
    bleu.corpus_score(["a"], [["a"]])
    signature = str(bleu.get_signature())
    assert evaluate._TOKENIZER.findall(signature) == [name]


@pytest.mark.parametrize(
    "flags, name",
    [
        ("--split dev", "`split`"),
        ("--corpus copy --split bad", "bad.de"),
        ("--tokenize 13b", "`tokenize`"),
    ],
)
def test_what_is_wrong_is_known_before_the_work(
    run_dir, corpus, tmp_path, monkeypatch, capsys, flags, name
):
    monkeypatch.setattr(evaluation, "translate", None)  # Never called.
    monkeypatch.chdir(tmp_path)
    shutil.copytree(corpus, "copy")
    write_lines(tmp_path / "copy" / "bad.en", ENGLISH)
    write_lines(tmp_path / "copy" / "bad.de", GERMAN[:-1])

    assert name in refused(capsys, "evaluate", run_dir, *flags.split())


def test_another_corpus_leaves_the_runs_own_results(run_dir, corpus, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_lines(other / "test.en", ENGLISH[:2])
    write_lines(other / "test.de", GERMAN[:2])

    assert run("evaluate", run_dir, "--corpus", corpus) == 0
    before = (run_dir / "evaluation" / "test" / "scores.json").read_bytes()
    scores = Run(run_dir).card().scores
    for _ in range(2):
        assert run("evaluate", run_dir, "--corpus", other) == 0

    name = evaluation.folder_name("test", str(other), False)
    assert name.endswith("-other.test")
    report = report_of(run_dir, name)
    assert report["corpus"] == str(other) and report["sentences"] == 2
    folder = run_dir / "evaluation"
    assert (folder / "test" / "scores.json").read_bytes() == before
    assert Run(run_dir).card().scores == scores and scores
    assert not list(folder.glob("**/.*"))


def test_a_read_only_run_is_scored(run_dir, monkeypatch, caplog, capsys):
    def written():
        files = [*(run_dir / "evaluation").rglob("*.*")]
        return {path: path.stat().st_mtime_ns for path in files}

    before = written()
    # Root may write anywhere: only a file system can be read-only to it.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert run("evaluate", run_dir) == 0
    assert "Cannot write to" in caplog.text
    assert "BLEU" in capsys.readouterr().out
    assert written() == before


def test_an_interrupt_leaves_the_results_before_it_or_the_texts_to_score(
    run_dir, monkeypatch
):
    folder = run_dir / "evaluation" / "test"
    assert run("evaluate", run_dir) == 0
    texts = (folder / "translation.txt").read_bytes()
    (folder / "translation.txt").write_text("Of an earlier training.\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "translate", interrupt)
        assert run("evaluate", run_dir) == 130
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.setattr(evaluation, "score", interrupt)
    assert run("evaluate", run_dir) == 130
    # Figures of the earlier translations would be taken for theirs.
    assert not (folder / "scores.json").exists()
    assert (folder / "translation.txt").read_bytes() == texts
