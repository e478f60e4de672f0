"""`keras-transformer evaluate`: scores, reports, and what it refuses."""

import json
import os
import shutil
import threading

import pytest
import sacrebleu
from verb_calls import ENGLISH, GERMAN, on_one_line, run, write_lines

from keras_transformer.translation import evaluation, significance


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
        ("dev", {}, "it has: test, train; name one of them as --split."),
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
    assert "received nowhere, which is not a folder" in capsys.readouterr().err


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


def test_evaluate_compares_with_another_run_or_file(
    run_dir, tmp_path, capsys, monkeypatch
):
    asked = []
    read = significance.read_translations

    def reading(*arguments):
        asked.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(significance, "read_translations", reading)
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
    assert {arguments[0] for arguments in asked} == {other, run_dir}


def test_a_file_of_another_length_is_refused_before_the_work(
    run_dir, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(evaluation, "evaluate", None)  # Never called.
    write_lines(tmp_path / "short.txt", GERMAN[:-1])

    code = run("evaluate", run_dir, "--against", tmp_path / "short.txt")

    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: Expected 5 lines in ")
    assert error.count("\n") == 1

    assert run("evaluate", run_dir, "--against", tmp_path / "no") == 2
    assert "file of translations as --against" in capsys.readouterr().err


def test_another_system_may_come_through_a_pipe(run_dir, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_lines, args=(pipe, GERMAN))
    writer.start()
    assert run("evaluate", run_dir, "--against", pipe) == 0
    writer.join()
    assert f"  {pipe}\n" in capsys.readouterr().out
