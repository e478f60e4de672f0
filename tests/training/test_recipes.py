"""The recipes: the numbers of the paper, which their README.md shows too."""

import dataclasses
import pathlib
import re

import pytest
from sample_runs import TINY, make_run

import keras_transformer
from keras_transformer.__main__ import parse_args
from keras_transformer.commands import flags, train
from keras_transformer.config import UserError
from keras_transformer.data.texts import Corpus
from keras_transformer.presets import PRESETS
from keras_transformer.training import preparation, request
from keras_transformer.training.request import understand

RECIPES = pathlib.Path(__file__).parents[2] / "keras_transformer" / "recipes"

# paper.md by hand: preset, vocabulary, BLEU.
PAPER = {
    "wmt14-en-de-base": ("base", 37_000, 27.3),
    "wmt14-en-de-big": ("big", 37_000, 28.4),
    "wmt14-en-fr-base": ("base", 32_000, 38.1),
    "wmt14-en-fr-big": ("big-en-fr", 32_000, 41.8),
}
PARSERS = {"parsing": 16_000, "parsing-semi": 32_000}


def table():
    """The rows of the README's table of recipes and models."""
    text = (RECIPES / "README.md").read_text()
    lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    rows = [[x.strip(" `") for x in line.split("|")] for line in lines]
    start = [row[:2] for row in rows].index(["recipe", "model"]) + 2
    return rows[start : start + len(PAPER)]


def run_of(recipe, *more):
    args = parse_args(["train", f"@{recipe}", *more])
    session = understand(**flags.given(args, train.FIELDS))
    return session.run, session


@pytest.fixture(autouse=True, scope="module")
def no_corpus_is_opened():
    def opened(name, *languages, **more):
        return Corpus(str(name), "en", "de", ("train", "val"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request.corpora, "open_corpus", opened)
        yield


def test_there_is_a_recipe_for_each_training_of_the_paper_and_for_few_pairs():
    found = {path.stem for path in RECIPES.glob("*.args")}
    assert found == {*PAPER, *PARSERS, "small-corpus", "terms"}


@pytest.mark.parametrize("recipe", PARSERS)
def test_a_recipe_of_a_parser_is_its_preset(recipe, tmp_path, monkeypatch):
    text = tmp_path / ("treebank" + recipe.removeprefix("parsing"))
    text.mkdir()
    (text / "symbols.txt").write_text("▁(S\n▁)S\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    run, session = run_of(recipe)

    preset = PRESETS[recipe]
    assert run.model == preset.model
    assert run.model.vocab_size == PARSERS[recipe]
    assert (run.training, run.search) == (preset.training, preset.search)
    assert (run.source_lang, run.target_lang) == ("sentence", "tree")
    assert run.corpus == str(text)
    assert run.symbols == ("▁(S", "▁)S")
    assert session.run_dir == pathlib.Path("runs", recipe)


def test_the_recipe_for_few_pairs_takes_any_corpus():
    run, _ = run_of("small-corpus", "--corpus", "demo", "--target-lang", "fr")
    tiny = PRESETS["tiny"]
    assert run.model == dataclasses.replace(
        tiny.model, vocab_size=8_000, norm_first=True, dropout=0.2
    )
    assert (run.corpus, run.target_lang) == ("demo", "fr")
    assert run.training.batch_tokens == 2_048
    assert run.search.length_penalty == 1.4


def test_a_file_of_flags_is_a_recipe_and_the_last_one_wins(tmp_path):
    path = tmp_path / "mine.args"
    path.write_text(
        "# mine\n--steps 3  # few\n\n--norm-first --corpus 'a folder'\n"
        "--minutes=1.5 --corpus b:2"
    )
    expected = dict(steps=3, norm_first=True, minutes=1.5)
    expected["corpus"] = ["a folder", "b:2"]
    assert keras_transformer.recipe(path) == expected
    # As Windows may save it.
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    run, session = run_of("terms", f"@{path}", "@small-corpus", "--seed", "7")
    assert keras_transformer.recipe(path) == expected
    recipe = run.training
    assert (recipe.term_share, recipe.steps, recipe.seed) == (0.2, 16_000, 7)
    assert session.minutes == 1.5 and run.corpus.endswith("b:2")
    run, _ = run_of("wmt14-en-de-base", "--corpus", "demo")
    assert run.corpus == "demo"


@pytest.mark.parametrize(
    "content",
    [
        *(None, b"--corpus \xff", b"--stepz 3", b"--steps x", b"'"),
        *(b"steps 3", b"--steps", b"--corpus --steps 3"),
    ],
)
def test_a_wrong_file_of_flags_is_one_sentence(tmp_path, content):
    path = tmp_path / "x.args"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match="x.args"):
        keras_transformer.recipe(path)


def test_a_file_of_ones_own_comes_before_a_recipe_of_its_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("small-corpus").write_text("--steps 3")
    assert keras_transformer.recipe("small-corpus") == {"steps": 3}


def test_a_recipe_may_bring_the_run_to_begin_with(tmp_path):
    make_run(TINY).save(tmp_path)
    path = tmp_path / "tune.args"
    path.write_text(f"--init-from {tmp_path} --vocab-size 8000")
    run = understand(corpus="demo", recipe=["small-corpus", path]).run
    assert run.model == dataclasses.replace(TINY, dropout=0.2)


def test_a_recipe_gives_no_shape_to_a_run_that_begins_with_another(tmp_path):
    make_run(dataclasses.replace(TINY, dropout=0.3)).save(tmp_path)
    asked = dict(corpus="demo", recipe="small-corpus", init_from=tmp_path)
    run = understand(**asked).run
    assert run.model == dataclasses.replace(TINY, dropout=0.2)
    assert run.training.warmup_steps == 2_000
    with pytest.raises(UserError, match="`norm_first`"):
        understand(**asked, norm_first=True)


def test_a_fine_tuning_follows_the_size_of_its_text(tmp_path):
    how = dict(corpus="demo", validation_share=0.1, patience=9)
    source = understand(recipe="small-corpus", **how).run.training
    make_run(TINY, source).save(tmp_path)

    def fitted(epoch, **given):
        given = dict(corpus="demo", init_from=tmp_path, **given)
        session = understand(run_dir=tmp_path / "new", **given)
        return preparation.fitted(session, session.run, epoch).training

    found = fitted(epoch=4)
    assert found.batch_tokens == 2_048 and found.validation_share is None
    assert (found.steps, found.validation_steps, found.patience) == (400, 13, 5)
    # The rate begins where that of 16,000 updates ended.
    assert found.warmup_steps == 40
    scale = 2.8 * (40 / 16_000) ** 0.5
    assert found.learning_rate_scale == pytest.approx(scale)
    given = dict(steps=7, warmup_steps=2, validation_steps=3, patience=1)
    assert fitted(epoch=4, **given) == dataclasses.replace(
        source, validation_share=None, **given
    )
    # A large text is read no longer than its source's was.
    assert fitted(epoch=5_000).steps == 16_000


@pytest.mark.parametrize("recipe", PAPER)
def test_a_recipe_has_the_papers_numbers(recipe):
    run, session = run_of(recipe)
    name, vocab_size, _ = PAPER[recipe]
    preset = PRESETS[name]  # Its numbers: test_presets.py.
    assert run.model == dataclasses.replace(preset.model, vocab_size=vocab_size)
    assert (run.training, run.search) == (preset.training, preset.search)
    assert run.training.precision == "float32"
    # So all have the same batches, on any hardware.
    assert (run.training.seed, run.training.length_growth) == (1, 1.06)
    assert (run.source_lang, run.target_lang) == ("en", recipe[9:11])
    assert run.corpus == f"tfds:wmt14_translate/{recipe[9:11]}-en"
    assert run.train_split == "train"
    assert run.validation_split == "validation"
    assert session.run_dir == pathlib.Path("runs", recipe)


def test_the_readme_shows_what_the_recipes_hold():
    rows = table()
    assert {row[0] for row in rows} == set(PAPER)
    for recipe, name, *shown in rows:
        run, _ = run_of(recipe)
        assert recipe.endswith(name)
        assert [float(x.replace(",", "")) for x in shown] == [
            run.model.vocab_size,
            run.model.dropout,
            run.training.label_smoothing,
            run.training.warmup_steps,
            run.training.steps,
            run.training.average,
            PAPER[recipe][-1],
        ]


@pytest.mark.parametrize("recipe", [None, "small-corpus"])
def test_a_size_beside_a_vocabulary_is_told_to_have_no_effect(
    recipe, tmp_path, caplog
):
    how = dict(corpus="demo", tokenizer=tmp_path / "words.model", recipe=recipe)
    understand(**how)  # The recipe has a size too.
    assert not caplog.messages
    understand(**how, vocab_size=1_234)
    (said,) = caplog.messages
    assert "`vocab_size`" in said
