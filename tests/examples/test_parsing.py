"""Trees to lines and back, EVALB's rules, and a parser from text to export."""

import itertools
import json
import pathlib
import sys

import PYEVALB.parser
import PYEVALB.scorer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree
from session_loader import Served

from keras_transformer import __main__
from keras_transformer.data.pieces import read_symbols
from keras_transformer.runs.run_config import RunConfig

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "parsing"
sys.path.insert(0, str(FOLDER))

import brackets  # noqa: E402
import draw  # noqa: E402
import grammar  # noqa: E402
import prepare  # noqa: E402
import score  # noqa: E402
import trees  # noqa: E402

# As the Penn Treebank has it: function tags, an index, a trace, two lines.
MRG = """
( (S (NP-SBJ-1 (DT The) (NN dog))
     (VP (VBZ seems)
         (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB sleep)))))
     (. .)))
( (NP (-LRB- -LRB-) (NNS cats) (-RRB- -RRB-)) )
"""
GOLD = (
    "(S (NP (DT The) (NN dog)) (VP (VBZ seems) "
    "(S (VP (TO to) (VP (VB sleep))))) (. .))"
)
LINE = "(S (NP XX XX )NP (VP XX (S (VP XX (VP XX )VP )VP )S )VP XX )S"


def some_tree(chance, words, depth=0):
    """A random tree; no constituent has its label and its words again."""
    size = len(words)
    if size == 1 and (depth > 2 or chance.random() < 0.5):
        return Tree("N", words)
    cuts = sorted(chance.sample(range(1, size), chance.randrange(size)))
    if not cuts and size > 1:
        cuts = [1]
    parts = [words[a:b] for a, b in itertools.pairwise([0, *cuts, size])]
    label = chance.choice((["S", "NP"], ["VP", "X"])[depth % 2])
    return Tree(label, [some_tree(chance, part, depth + 1) for part in parts])


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1).map(
    lambda text: "".join(c for c in text if c not in "()")
)
names = names.filter(bool)
every_tree = st.recursive(
    st.builds(lambda tag, word: Tree(tag, [word]), names, names),
    lambda inner: st.builds(Tree, names, st.lists(inner, min_size=1)),
    max_leaves=20,
)


@given(every_tree)
def test_every_tree_comes_back_from_its_line(tree):
    line = trees.linearise(tree)
    assert trees.delinearise(line, tree.pos()) == tree
    # As many words, and two brackets for every constituent.
    words = len(tree.leaves())
    constituents = sum(1 for _ in tree.subtrees()) - words
    assert len(line.split()) == words + 2 * constituents


@pytest.mark.parametrize(
    "line",
    [
        *("", "(S XX XX XX )S", "(S XX XX", "(S XX XX )NP"),
        *("(S XX (NP )NP XX )S", "(S XX )S (S XX )S", "(S XX dog )S"),
    ],
)
def test_what_is_no_tree_over_two_words_is_malformed(line):
    gold = Tree.fromstring("(S (NP (NN dogs)) (VP (VBP sleep)))")
    with pytest.raises(ValueError):
        trees.delinearise(line, gold.pos())
    # Counted: its three constituents are missing, and nothing is too much.
    assert brackets.compare(gold, line) == brackets.Counts(
        matched=0, gold=3, predicted=0, sentences=1, exact=0, malformed=1
    )


@given(st.randoms(use_true_random=False), st.integers(2, 13))
def test_brackets_are_those_of_another_implementation(chance, size):
    words = [f"w{i}" for i in range(size)]
    gold, other = some_tree(chance, words), some_tree(chance, words)
    found = brackets.compare(gold, trees.linearise(other))
    parse = PYEVALB.parser.create_from_bracket_string
    both = (parse(trees.on_one_line(tree)) for tree in (gold, other))
    theirs = PYEVALB.scorer.Scorer().score_trees(*both)
    assert found.matched == theirs.matched_brackets
    assert found.gold == theirs.gold_brackets
    assert found.predicted == theirs.test_brackets
    assert not found.malformed


# By hand, after the rules of EVALB's parameters COLLINS.prm: right brackets,
# those there should be, those there are, whether all is right.
@pytest.mark.parametrize(
    "gold, line, expected",
    [
        # S 0-3, NP 0-1, VP 1-3, NP 2-3 against S, NP, VP 1-2.
        (
            "(S (NP (N a)) (VP (V b) (NP (N c))))",
            "(S (NP XX )NP (VP XX )VP XX )S",
            (2, 4, 3, 0),
        ),
        # The comma and the stop are out of the sentence: S 0-2 is S 0-2.
        (
            "(S (S (N a) (, ,) (N b)) (. .))",
            "(S (S XX XX XX XX )S )S",
            (2, 2, 2, 1),
        ),
        # TOP is none either, PRT is ADVP.
        (
            "(TOP (VP (V a) (PRT (R b))))",
            "(VP XX (ADVP XX )ADVP )VP",
            (2, 2, 2, 1),
        ),
    ],
)
def test_brackets_are_counted_by_the_rules_of_evalb(gold, line, expected):
    found = brackets.compare(Tree.fromstring(gold), line)
    counts = (found.matched, found.gold, found.predicted, found.exact)
    assert counts == expected


@pytest.mark.parametrize("content", [b"(S (NN d\xff))", b"(S the (NN dog))"])
def test_what_is_no_treebank_is_one_sentence(tmp_path, content, capsys):
    path = tmp_path / "a.mrg"
    path.write_bytes(content)
    assert prepare.main([str(tmp_path), "--train", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: Expected ")


def test_a_split_has_sentences_lines_and_trees(tmp_path):
    path = tmp_path / "a.mrg"
    path.write_text(MRG)
    assert prepare.main([str(tmp_path / "text"), "--train", str(path)]) == 0
    text = {x.name: x.read_text("utf-8") for x in (tmp_path / "text").iterdir()}
    assert text == {
        "train.sentence": "The dog seems to sleep .\n-LRB- cats -RRB-\n",
        "train.tree": f"{LINE}\n(NP XX XX XX )NP\n",
        "train.gold": f"{GOLD}\n(NP (-LRB- -LRB-) (NNS cats) (-RRB- -RRB-))\n",
        "symbols.txt": "▁(NP\n▁(S\n▁(VP\n▁)NP\n▁)S\n▁)VP\n",
    }
    read_symbols(tmp_path / "text" / "symbols.txt")
    # A tree of traces alone is left out.
    assert trees.clean(Tree.fromstring("(S (NP (-NONE- *)))")) is None


def test_given_lines_are_scored_and_drawn(tmp_path):
    gold, predicted = tmp_path / "gold", tmp_path / "predicted"
    gold.write_text(f"{GOLD}\n" * 3)
    predicted.write_text(f"{LINE}\n{LINE.replace('NP', 'X')}\n(S XX\n")
    argv = ["--gold", str(gold), "--predicted", str(predicted)]
    assert score.main([*argv, "--json", str(tmp_path / "json")]) == 0
    # Six constituents a tree, one of them wrong in the second.
    found = json.loads((tmp_path / "json").read_text())
    assert (found["matched"], found["gold"], found["predicted"]) == (11, 18, 12)
    assert draw.main([str(tmp_path / "tree.png"), *argv]) == 0
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.example
def test_a_parser_is_trained_scored_and_exported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ["--train", "300", "--val", "11", "--test", "13"]
    assert grammar.main(["runs/treebank", *sizes]) == 0
    files = [
        *("--train", "runs/treebank/train.mrg"),
        *("--val", "runs/treebank/val.mrg"),
        *("--test", "runs/treebank/test.mrg"),
    ]
    assert prepare.main(["runs/grammar-text", *files]) == 0
    shape = ["--d-model", "12", "--num-heads", "2", "--ffn-dim", "17"]
    search = ["--beam-size", "2", "--max-extra-length", "37"]
    argv = ["train", f"@{FOLDER / 'grammar.args'}", *shape, *search]
    assert __main__.main([*argv, "--steps", "3", "--batch-tokens", "512"]) == 0
    capsys.readouterr()

    argv = ["--run-dir", "runs/grammar", "--export", "exported/grammar"]
    assert score.main([*argv, "--json", "f1.json"]) == 0
    assert capsys.readouterr().out.endswith("\nexported/grammar/1\n")
    found = json.loads(pathlib.Path("f1.json").read_text())
    # Nothing is learnt in three steps: what it writes is no tree, and counts.
    assert found["sentences"] == found["malformed"] == 13
    assert found["gold"] > 100 and found["recall"] == 0
    # The export has the symbols, and the run's search.
    run = RunConfig.load("runs/grammar")
    assert run.symbols and "▁(SBAR" in run.symbols
    lines = pathlib.Path("runs/grammar/evaluation/test.predicted")
    texts = pathlib.Path("runs/grammar-text/test.sentence")
    served = Served(pathlib.Path("exported/grammar/1"))
    found = served("serving_default", text=texts.read_text("utf-8").split("\n"))
    answers = [text.decode() for text in found["translation"]]
    assert answers == lines.read_text("utf-8").split("\n")
    source = served("score", source=["she sleeps ."], target=["(S XX )S"])
    assert source["num_tokens"].tolist() == [4]
