"""Mixtures of corpora: what is read, how often and under which name; splits."""

import pytest

from keras_transformer.config import UserError
from keras_transformer.data.corpora import (
    Mixture,
    Part,
    absolute_name,
    hold_out,
    open_corpus,
    parts_of,
)
from keras_transformer.training.request import understand


def write(folder, *splits, count=7):
    """Write splits in which line 3 of `a/train.en` is `a train 3`."""
    folder.mkdir()
    for split in splits:
        for language, word in (("en", split), ("de", split.upper())):
            lines = [f"{folder.name} {word} {i}\n" for i in range(count)]
            (folder / f"{split}.{language}").write_text("".join(lines))


@pytest.fixture(autouse=True)
def corpora(tmp_path, monkeypatch):
    """A corpus with all splits and one of pairs to train on alone."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a", "train", "val", "test", count=5)
    write(tmp_path / "b", "train", count=7)


def numbers(corpus, name):
    """The numbers of the pairs of corpus `name` in a mixture, in order."""
    return [
        int(source.split()[-1])
        for source, _ in corpus.pairs("train")
        if f"{name} train" in source
    ]


def test_a_list_trains_on_all_and_has_the_other_splits_of_the_first():
    mixed = open_corpus(["a", "b"])
    alone = [open_corpus(name) for name in ("a", "b")]
    assert list(mixed.pairs("train")) == [
        pair for corpus in alone for pair in corpus.pairs("train")
    ]
    for split in ("val", "test"):
        assert list(mixed.pairs(split)) == list(alone[0].pairs(split))
    assert mixed.splits == alone[0].splits


def test_a_tag_begins_every_source_and_no_target(tmp_path):
    mixed = open_corpus("a + b:<bt>")
    pairs = list(mixed.pairs("train"))
    assert pairs[5] == ("<bt> b train 0", "b TRAIN 0")
    assert not any("<bt>" in text for pair in pairs[:5] for text in pair)
    # It does not turn an empty source into text.
    (tmp_path / "b/train.en").write_text("\n" * 7)
    pairs = list(open_corpus("a + b:<bt>").pairs("train"))
    assert [source for source, _ in pairs][5:] == [""] * 7


# Worked out by hand: the k-th whole number that n·w reaches takes pair n.
@pytest.mark.parametrize(
    "weight, taken",
    [
        ("1", [0, 1, 2, 3, 4, 5, 6]),
        ("0.5", [1, 3, 5]),
        ("0.3", [3, 6]),
        ("2", [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]),
        ("1.5", [0, 1, 1, 2, 3, 3, 4, 5, 5, 6]),
    ],
)
def test_a_weight_says_how_often_a_pair_comes(weight, taken):
    mixed = open_corpus(["a", f"b:{weight}"])
    assert numbers(mixed, "b") == taken
    assert numbers(mixed, "a") == [0, 1, 2, 3, 4]


def test_weights_are_exact_however_many_pairs_there_are():
    # In floating-point numbers, ten times 0.1 is less than 1.
    pairs = [(str(number), "x") for number in range(1_000)]
    (part,) = parts_of("x:0.1")
    thousand = Mixture([(part, open_corpus(pairs))], "train").pairs("train")
    taken = [int(source) for source, _ in thousand]
    assert taken == list(range(9, 1_000, 10))


def test_another_split_is_mixed_if_that_is_trained_on(tmp_path):
    write(tmp_path / "c", "clean")
    write(tmp_path / "d", "clean", "train")
    mixed = open_corpus(["d", "c"], train_split="clean")
    assert len(list(mixed.pairs("clean"))) == 2 * 7
    assert len(list(mixed.pairs("train"))) == 7
    with pytest.raises(UserError, match="train; .* clean"):
        open_corpus(["d", "c"])


def test_the_name_finds_the_same_text_from_everywhere(tmp_path, monkeypatch):
    mixed = open_corpus(["a", "b:0.30:<bt>"])
    assert mixed.name == "a + b:0.3:<bt>"
    name = absolute_name(mixed.name)
    assert name == f"{tmp_path}/a + {tmp_path}/b:0.3:<bt>"
    pairs, state = list(mixed.pairs("train")), mixed.state_of("train")
    monkeypatch.chdir("/")
    again = open_corpus(name)
    assert list(again.pairs("train")) == pairs
    assert again.state_of("train") == state and len(state) == 4
    assert len(again.state_of("val")) == 2  # The first corpus's alone.


def test_a_held_out_split_comes_from_the_first_corpus(tmp_path):
    for name in ("val", "test"):
        for language in ("en", "de"):
            (tmp_path / f"a/{name}.{language}").unlink()
    held = hold_out(open_corpus("a + b:<bt>"), ("train", "val"), 0.4)
    val = [source for source, _ in held.pairs("val")]
    assert val and all(source.startswith("a ") for source in val)
    held_out = [int(source.split()[-1]) for source in val]
    assert sorted(held_out + numbers(held, "a")) == list(range(5))
    assert numbers(held, "b") == list(range(7))


def test_a_run_keeps_the_name_and_its_tags_are_symbols(tmp_path):
    settings = dict(preset="tiny", run_dir=tmp_path / "run")
    session = understand(corpus=["a", "b:0.5:<bt>"], **settings)
    run, corpus = session.run, session.corpus
    assert run.corpus == f"{tmp_path}/a + {tmp_path}/b:0.5:<bt>"
    assert run.symbols == ("<bt>",)
    assert absolute_name(corpus.name) == run.corpus
    settings["symbols"] = ["<x>", "<bt>"]
    run = understand(corpus=["a", "b:<bt>"], **settings).run
    assert run.symbols == ("<x>", "<bt>")
    del settings["symbols"]
    assert understand(corpus=["a", "b"], **settings).run.symbols is None


@pytest.mark.parametrize(
    "name, received", [("c:2", "received .*/c"), ("b:<s>", "found <s>")]
)
def test_a_wrong_name_is_one_sentence(name, received):
    with pytest.raises(UserError, match=received):
        understand(corpus=["a", name], preset="tiny")


# Every source comes twice, with two translations.
THOUSAND = [(f"source {i % 500}", f"target {i}") for i in range(1_000)]


def parted(share=0.2, pairs=THOUSAND, **others):
    corpus = open_corpus({"train": pairs, **others})
    return hold_out(corpus, ("train", "val"), share)


def test_no_source_is_on_both_sides_and_no_pair_is_lost():
    test = [("a", "b")]
    corpus = parted(test=test)
    train, held = (list(corpus.pairs(split)) for split in ("train", "val"))
    assert sorted(train + held) == sorted(THOUSAND)
    assert not {s for s, _ in train} & {s for s, _ in held}
    # The deviation of a binomial of 500 sources at 0.2, twice each, is 18.
    assert 128 < len(held) < 272
    assert list(corpus.pairs("test")) == test


def test_runs_of_other_seeds_hold_out_the_same():
    how = dict(corpus=THOUSAND, preset="tiny", validation_share=0.2)
    first, other = (understand(seed=seed, **how).text for seed in (3, 5))
    assert list(first.pairs("val")) == list(other.pairs("val"))
    for corpus in (parted(), Mixture([(Part("a"), parted())], "train")):
        held = [text for pair in parted().pairs("val") for text in pair]
        assert list(corpus.sentences("val")) == held


def test_a_corpus_with_a_validation_split_is_refused():
    with pytest.raises(UserError, match="split val,"):
        parted(val=[("a", "b")])
    with pytest.raises(UserError, match="split validation,"):
        parted(validation=[("a", "b")])  # Which `val` finds.
