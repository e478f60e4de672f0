"""`keras-transformer evaluate`: scores, reports, and what it refuses."""

import json
import os
import shutil
import threading
from unittest import mock

import pytest
import sacrebleu
from verb_calls import ENGLISH, GERMAN, on_one_line, run, write_lines

from keras_transformer.config import UserError
from keras_transformer.run import Run
from keras_transformer.translation import evaluation, significance


@pytest.mark.stands_for("evaluations by the verb")
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

    assert run("evaluate", run_dir, "--lowercase") == 0
    bleu = sacrebleu.corpus_bleu(translations, [GERMAN], lowercase=True)
    assert f"{bleu.score:6.2f}  BLEU, lower-cased  nrefs:1|case:lc|" in (
        capsys.readouterr().out
    )


def test_given_translations_are_scored_against_every_reference(
    run_dir, corpus, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(evaluation, "translate", None)  # Nothing is translated.
    hypotheses, second = tmp_path / "hypotheses.de", tmp_path / "second.de"
    texts = [text.replace("Hund", "Dackel") for text in GERMAN]
    others = [f"auch {text}" for text in texts]
    write_lines(hypotheses, texts)
    write_lines(second, others)
    numbered = shutil.copytree(corpus, tmp_path / "numbered")
    (numbered / "test.de").rename(numbered / "test.de.0")
    shutil.copy(second, numbered / "test.de.1")
    references = [GERMAN, others]
    bleu = sacrebleu.corpus_bleu(texts, references)
    chrf = sacrebleu.corpus_chrf(texts, references)
    assert bleu.score > sacrebleu.corpus_bleu(texts, [GERMAN]).score

    for flags in (
        ("--corpus", numbered),
        ("--reference", corpus / "test.de", "--reference", second),
    ):
        given = ("--hypotheses", hypotheses, "--json", tmp_path / "report.json")
        assert run("evaluate", run_dir, *given, *flags) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"{bleu.score:6.2f}  BLEU  nrefs:2|")
        assert lines[1].startswith(f"{chrf.score:6.2f}  chrF2  nrefs:2|")
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["hypotheses"] == str(hypotheses)
        assert "seconds" not in report and "checkpoints" not in report
    assert report["reference"] == [str(corpus / "test.de"), str(second)]
    result = Run(run_dir).evaluate(hypotheses=texts, reference=references)
    assert (result.bleu.value, result.chrf.value) == (bleu.score, chrf.score)
    assert result.compound_split_bleu.signature.startswith("nrefs:2|")


def test_translations_are_scored_against_every_reference(
    run_dir, translator, tmp_path, capsys
):
    others = [f"{text} auch" for text in translator.translate(ENGLISH)]
    write_lines(tmp_path / "others.de", others)
    flags = ("--reference", tmp_path / "others.de")

    assert run("evaluate", run_dir, *flags) == 0

    folder = run_dir / "evaluation"
    texts = (folder / "test.de.txt").read_bytes().decode().split("\n")[:-1]
    bleu = sacrebleu.corpus_bleu(texts, [others])
    assert capsys.readouterr().out.startswith(f"{bleu.score:6.2f}  BLEU  nr")
    report = json.loads((folder / "test.json").read_text())
    assert report["reference"] == [str(tmp_path / "others.de")]
    # Of other references than the test set's, so not on a model card.
    assert Run(run_dir).card().scores == ()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--hypotheses short", "Expected 5 lines in short, one for each"),
        ("--reference short", "Expected 5 lines in short, one for each"),
        ("--hypotheses none", "file that can be read as --hypotheses, rec"),
        ("--reference none", "file that can be read as --reference, rec"),
        (
            "--hypotheses whole --beam-size 3",
            "Expected no --beam-size beside --hypotheses, for which nothing is",
        ),
        (
            "--hypotheses whole --precision int8",
            "Expected no --precision beside --hypotheses, for which nothing is",
        ),
        ("--split dev", "it has: test, train; name one of them as --split."),
        ("--corpus copy --split bad", "found 5 in"),
        ("--corpus nowhere", "received nowhere, which is not a folder"),
        (
            "--json copy",
            "error: Expected the name of a file, but {}/copy is a folder; "
            "choose another name.\n",
        ),
        ("--json no/it.json", "No such file or directory"),
        ("--against short", "error: Expected 5 lines in "),
        ("--against none", "file of translations as --against"),
    ],
)
def test_what_is_wrong_is_known_before_the_work(
    run_dir, corpus, tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.setattr(evaluation, "translate", None)  # Never called.
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "short", GERMAN[:-1])
    write_lines(tmp_path / "whole", GERMAN)
    shutil.copytree(corpus, "copy")
    write_lines(tmp_path / "copy" / "bad.en", ENGLISH)
    write_lines(tmp_path / "copy" / "bad.de", GERMAN[:-1])

    assert run("evaluate", run_dir, *flags.split()) == 2

    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert message.format(tmp_path) in error


def test_an_unknown_tokeniser_is_refused_before_the_work(run_dir, monkeypatch):
    monkeypatch.setattr(evaluation, "translate", None)  # Never called.
    with pytest.raises(UserError, match="`tokenize` to be one of 13a, "):
        Run(run_dir).evaluate(tokenize="13b")


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
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(evaluation, "translate", interrupt)
    assert run("evaluate", run_dir) == 130
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_translations_outlive_an_interrupt_while_they_are_scored(
    run_dir, monkeypatch, capsys
):
    folder = run_dir / "evaluation"
    assert run("evaluate", run_dir) == 0
    said = capsys.readouterr().out
    texts = (folder / "test.de.txt").read_bytes()
    (folder / "test.de.txt").write_text("Of an earlier training.\n")
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "score", interrupt)
        assert run("evaluate", run_dir) == 130
    # Figures of the earlier translations would be taken for theirs.
    assert not (folder / "test.json").exists()
    assert (folder / "test.de.txt").read_bytes() == texts
    given = folder / "test.de.txt"
    assert run("evaluate", run_dir, "--hypotheses", given) == 0
    assert capsys.readouterr().out == said


def test_evaluate_compares_with_another_run_or_file(
    run_dir, tmp_path, capsys, monkeypatch
):
    read = mock.Mock(wraps=significance.read_translations)
    monkeypatch.setattr(significance, "read_translations", read)
    other, report = tmp_path / "other.txt", tmp_path / "report.json"
    write_lines(other, GERMAN)
    assert run("evaluate", run_dir) == 0
    alone = capsys.readouterr().out

    assert run("evaluate", run_dir, "--against", other, "--json", report) == 0

    (scores, *blocks) = capsys.readouterr().out.split("\n\n")
    assert f"{scores}\n" == alone
    fields = json.loads(report.read_text())
    assert fields["against"] == str(other)
    for block, found in zip(blocks, fields["comparisons"], strict=True):
        title, first, second, signature = block.splitlines()
        assert title == f"{found['metric']}, {found['test']}"
        assert first.startswith(f"{found['other']['score']:6.2f}  ")
        assert first.endswith(f"  {other}") and "p =" not in first
        assert second.startswith(f"{found['system']['score']:6.2f}  ")
        assert f"  p = {found['system']['p_value']:.4f}  " in second
        assert second.endswith(f"  {run_dir}")
        assert ("±" in second) == ("bootstrap" in title)
        assert signature.strip() == found["signature"]
    assert fields["comparisons"][0]["other"]["score"] == pytest.approx(100)

    # The run's own translations of before, with which these are the same.
    assert run("evaluate", run_dir, "--against", run_dir) == 0
    assert capsys.readouterr().out.count("p = 1.0000") == 4
    assert {call.args[0] for call in read.mock_calls} == {other, run_dir}


def test_another_system_may_come_through_a_pipe(run_dir, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_lines, args=(pipe, GERMAN))
    writer.start()
    assert run("evaluate", run_dir, "--against", pipe) == 0
    writer.join()
    assert f"  {pipe}\n" in capsys.readouterr().out
