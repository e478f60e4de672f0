import dataclasses
import inspect
import itertools
import pathlib
import re

import numpy as np
import paper
import pytest
import sample_runs
from sample_runs import make_run, train_on_digits

import keras_transformer as kt
from keras_transformer.__main__ import parse_args
from keras_transformer.commands.train import given_arguments
from keras_transformer.data.batch_plan import BatchPlan
from keras_transformer.data.corpora import Corpus
from keras_transformer.data.records import Side, TokenisedCorpus
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.presets import PRESETS
from keras_transformer.training import dry_run, estimates
from keras_transformer.training.dry_run import report
from keras_transformer.training.request import Session, understand


def arguments(corpus, run_dir, *more):
    return sample_runs.digit_arguments(corpus, run_dir, "--dry-run", *more)


def figures(output):
    """The rows of a table: label, figure, what follows it."""
    rows = re.findall(r"(?m)^  (\S.*?)  +(\S+)(?:  (.*))?$", output)
    return [(label, float(x.replace(",", "")), note) for label, x, note in rows]


def figure(output, label, which=0):
    return [x for name, x, _ in figures(output) if name == label][which]


@pytest.fixture(scope="module")
def dry(corpus, tmp_path_factory):
    """Standard output of a dry run, and where the run would have gone."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("builtins.print", lambda *a, **k: printed.append(a[0]))
        assert train_on_digits(*arguments(corpus, folder / "run")) == 0
    return "\n".join(printed), folder


def test_a_dry_run_tells_size_tokens_memory_and_time(dry):
    output, _ = dry
    # As `digit_arguments` says: d_k and d_v are 34 / 2.
    vocabulary = int(figure(output, "vocabulary"))
    assert 260 < vocabulary <= 300
    count = paper.parameter_count(vocabulary, 1, 34, 67, 2, 17, 17)
    assert figure(output, "parameters") == count
    assert 100 < figure(output, "source tokens") <= 256
    assert 100 < figure(output, "target tokens") <= 256
    assert 0 < figure(output, "padding") < 50
    assert figure(output, "weights") == round(4 * count / 1e6)
    assert figure(output, "Adam's moments") == round(8 * count / 1e6)
    seconds = figure(output, "seconds a step")
    assert seconds > 0
    hours = seconds * PRESETS["demo"].training.steps / 3600
    assert figure(output, "hours") == pytest.approx(hours, rel=0.01)
    step, whole = figure(output, "FLOPs"), figure(output, "FLOPs", 1)
    steps = PRESETS["demo"].training.steps
    assert whole == pytest.approx(steps * step, rel=0.01)


def test_a_dry_run_writes_nothing(dry):
    _, folder = dry
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def begun(corpus, tmp_path_factory):
    """A run directory as it is after the first step."""
    run_dir = tmp_path_factory.mktemp("runs") / "begun"
    argv = arguments(corpus, run_dir)
    argv.remove("--dry-run")
    args = parse_args(["train", *argv])
    run_dir.mkdir()
    configuration = understand(**given_arguments(args)).run
    # A vocabulary of other text, so that one can tell which was used.
    words = (f"word {number}" for number in range(1_000))
    tokenizer = Tokenizer.train(words, 281, run_dir / "tokenizer.model")
    model = dataclasses.replace(
        configuration.model, vocab_size=tokenizer.vocab_size
    )
    dataclasses.replace(configuration, model=model).save(run_dir)
    (run_dir / "checkpoints" / "step-000000001").mkdir(parents=True)
    return run_dir, tokenizer.vocab_size


def state(run_dir):
    return {p: p.stat().st_mtime_ns for p in sorted(run_dir.rglob("*"))}


def test_a_dry_run_of_a_run_takes_its_vocabulary_and_leaves_it_alone(
    corpus, begun, capsys
):
    run_dir, vocab_size = begun
    before = state(run_dir)
    more = ("--strategy", "mirrored", "--accumulate", "2")
    assert train_on_digits(*arguments(corpus, run_dir, *more)) == 0
    output = capsys.readouterr().out
    assert state(run_dir) == before
    assert figure(output, "vocabulary") == vocab_size
    assert "micro-batches: 2" in output


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--seed 2", "seed = 1, this command says 2"),
        ("--corpus nowhere", "which is not a folder"),
        ("--strategy multiworker", "one machine for a dry run, received --str"),
        ("--run-dir new --tokenizer nowhere", "a vocabulary at nowhere"),
        ("--run-dir new --validation-split dev", "received dev; it has"),
        ("--run-dir /dev/null", "Expected a directory as --run-dir"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(
    corpus, begun, capsys, flags, message
):
    run_dir, _ = begun
    argv = arguments(corpus, run_dir, *flags.split())
    assert train_on_digits(*argv) == 2
    told = capsys.readouterr()
    assert message in told.err and told.out == ""


def corpus_of(pairs):
    return Corpus("name", "en", "de", ("train",), lambda _: iter(pairs))


def test_the_head_of_an_endless_corpus_ends():
    corpus = corpus_of(itertools.repeat(("a", "b")))
    assert sum(1 for _ in dry_run.head(corpus).pairs("train")) == 20_001


def run_of(preset):
    recipe = PRESETS[preset]
    return make_run(recipe.model, recipe.training, preset=preset)


def plan_of(source, target, batch_tokens):
    nothing = np.zeros(0, np.uint16)
    sides = (
        Side(nothing, np.array(x, np.int32), nothing) for x in (source, target)
    )
    return BatchPlan(TokenisedCorpus(*sides), batch_tokens)


def test_costs_are_means_and_the_largest_shape_by_hand():
    # 32 pairs of 4 tokens and 5, 16 rows to a batch of 80: two batches, each
    # (16, 4, 5), of which either of two replicas takes 8 rows.
    plan = plan_of([4] * 32, [5] * 32, 80)
    run = run_of("tiny")
    costs = dry_run.count(Session(run=run), plan, replicas=2)
    assert costs.source_tokens == 64
    assert costs.target_tokens == 80
    assert costs.flops == estimates.step_flops(run.model, 16, 4, 5)
    assert costs.largest == (8, 4, 5)
    assert costs.memory == estimates.memory(run.model, 8, 4, 5)


def test_compilations_are_the_shapes_that_a_micro_batch_has():
    # Batches of (16, 4, 5) and, of the rest of 8 pairs, (8, 4, 5): halves of
    # 8 rows and 4, of which two micro-batches have 4 and 2.
    plan = plan_of([4] * 40, [5] * 40, 80)
    assert plan.shapes() == [(8, 4, 5), (16, 4, 5)]
    session = Session(run=run_of("tiny"), accumulate=2)
    assert dry_run.count(session, plan, replicas=2).graphs == 2
    # In eight there is a row of each.
    session = dataclasses.replace(session, accumulate=8)
    costs = dry_run.count(session, plan, replicas=2)
    assert costs.graphs == 1
    measured = (16, 4, 5), 0.5
    output = report(session, plan, costs, *measured, 2, xla=True)
    assert figure(output, "XLA compilations") == 1
    output = report(session, plan, costs, *measured, 2)
    assert "XLA" not in output


def told(preset, rows):
    """The report where a step of that many rows of 16 took half a second."""
    plan = plan_of([4] * 32, [5] * 32, 80)
    session = Session(run=run_of(preset))
    costs = dry_run.count(session, plan)
    return report(session, plan, costs, (rows, 4, 5), seconds=0.5)


def test_time_is_scaled_from_the_rows_that_were_measured():
    output = told("base", rows=4)
    assert "scaled by FLOPs" in output
    # Four times the rows, four times the FLOPs; 100,000 steps.
    assert figure(output, "seconds a step") == 2
    assert figure(output, "target tokens/s") == 80 / 2
    assert figure(output, "hours") == 55.6


@pytest.mark.parametrize(
    "preset, days, flops", [("base", 0.5, 3.3e18), ("big", 3.5, 2.3e19)]
)
def test_the_papers_flops_are_shown_beside_ours(preset, days, flops):
    # Eight GPUs at 9.5 TFLOPS for so many days, to two digits.
    by_hand = 8 * 9.5e12 * days * 86_400
    assert by_hand == pytest.approx(flops, rel=0.01)
    output = told(preset, rows=16)
    assert figure(output, "the paper's") == flops
    assert "scaled" not in output


def test_lengths_of_a_head_are_planned_as_often_as_they_come(
    corpus, tmp_path, monkeypatch
):
    tokenizer = Tokenizer.train(["one two"], 264, tmp_path / "t.model")
    source = corpus_of([("one two", "eins")] * 30)

    def make_plan(name, head_pairs=None):
        head = source
        if head_pairs:
            monkeypatch.setattr(dry_run, "HEAD_PAIRS", head_pairs)
            head = dry_run.head(source)
        return dry_run.make_plan(run, head, tokenizer, tmp_path / name)

    run = dataclasses.replace(run_of("demo"), corpus=str(corpus))
    plan, whole = make_plan("all")
    assert whole
    assert len(plan.corpus) == 30
    _, whole = make_plan("just", 30)
    assert whole
    plan, whole = make_plan("head", 28)
    assert not whole
    assert len(plan.corpus) == 29 * dry_run.REPEATS
    lengths = plan.corpus.source_lengths
    assert lengths.sum() == dry_run.REPEATS * lengths[:29].sum()


def test_a_recipe_of_the_paper_can_be_asked_for_what_it_costs():
    args = parse_args(["train", "@wmt14-en-de-base", "--dry-run"])
    assert args.dry_run
    assert pathlib.Path("runs/wmt14-en-de-base") == args.run_dir


def test_python_tells_the_same_and_takes_what_a_training_takes(tmp_path):
    told = kt.dry_run(
        tmp_path / "run",
        corpus={"train": [("one two", "eins zwei")] * 50, "val": [("a", "b")]},
        recipe="small-corpus",
        vocab_size=270,
        num_layers=1,
        d_model=34,
        num_heads=2,
        accumulate=2,
    )
    # As the last line of a cell it looks as it is printed.
    assert repr(told) == str(told) and "\n" in repr(told)
    assert "tiny on memory: " in told and "micro-batches: 2" in told
    assert figure(told, "vocabulary") <= 270
    assert figure(told, "hours") > 0
    assert "The text, 50 pairs\n" in told and figure(told, "repeated") == 49
    assert not list(tmp_path.iterdir())
    names, others = (
        inspect.signature(function).parameters
        for function in (kt.dry_run, kt.train)
    )
    assert list(names.items()) == list(others.items())


def test_python_refuses_what_the_training_would(tmp_path):
    with pytest.raises(kt.UserError, match="Expected `accumulate` to be at "):
        kt.dry_run(tmp_path / "run", corpus="demo", accumulate=0)
    with pytest.raises(kt.UserError, match="Expected one machine for a dry "):
        kt.dry_run(
            tmp_path / "run",
            corpus="demo",
            preset="demo",
            strategy="multiworker",
        )
