"""Trees of a treebank as lines, and lines as trees again.

A tree is linearised as by Vinyals et al. (2015), "Grammar as a Foreign
Language", section 2.2: depth first, with the label at both brackets of a
constituent and every word as `XX`:

    (S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))
    (S (NP XX XX )NP (VP XX )VP )S

The words are left out, since the sentence has them. Their tags are, since
labelled F1 does not count them and a model that need not guess them is better
at the rest (about 1 point of F1 there).
"""

import pathlib
import re
from collections.abc import Iterator, Sequence

from nltk.tokenize import SExprTokenizer
from nltk.tree import Tree

from keras_transformer.config import UserError

WORD = "XX"
TRACE = "-NONE-"
# The label of brackets without one around several trees.
TOP = "TOP"


def read_trees(path: pathlib.Path) -> Iterator[Tree]:
    """Read bracketed trees, each on one line or several.

    Args:
        path: A file such as the Penn Treebank's `.mrg`, in UTF-8.

    Yields:
        The trees, without the empty brackets around them.

    Raises:
        UserError: If the file cannot be read or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
        for block in SExprTokenizer().tokenize(text):
            if block.strip():  # The end of the file is one.
                yield Tree.fromstring(block, remove_empty_top_bracketing=True)
    except OSError as error:
        raise UserError(
            f"Expected a file of trees, cannot read {path} "
            f"({error.strerror}); check the path."
        ) from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"Expected bracketed trees in UTF-8 in {path}, found something "
            f"else ({reason}); correct the file."
        ) from None


def clean(tree: Tree) -> Tree | None:
    """Remove traces and function tags from a tree, and nothing else.

    Args:
        tree: As a treebank has it.

    Returns:
        A new tree, whose constituents all hold words; None where nothing but
        traces was there.

    Raises:
        UserError: If a word has no tag of its own.
    """
    if is_word(tree):
        return None if tree.label() == TRACE else Tree(tree.label(), tree[:])
    if not len(tree) or any(isinstance(child, str) for child in tree):
        raise UserError(
            "Expected a tag for each word, such as (NN dog), found "
            f"{' '.join(str(tree).split())}; correct the tree."
        )
    kept = [child for child in map(clean, tree) if child is not None]
    label = without_functions(tree.label()) or TOP
    return Tree(label, kept) if kept else None


def is_word(tree: Tree) -> bool:
    """Return whether a tree is a tag and its word, such as `(NN dog)`."""
    return len(tree) == 1 and isinstance(tree[0], str)


def without_functions(label: str) -> str:
    """Return the part of a label before its first "-" or "=", if any."""
    return re.split("[-=]", label, maxsplit=1)[0] or label


def linearise(tree: Tree) -> str:
    """Write a tree as the line that the model learns to write.

    Args:
        tree: As from `clean`.
    """
    if is_word(tree):
        return WORD
    inner = " ".join(map(linearise, tree))
    return f"({tree.label()} {inner} ){tree.label()}"


def delinearise(line: str, words: Sequence[tuple[str, str]]) -> Tree:
    """Read the tree that a line stands for.

    Args:
        line: As from `linearise`, or what a model wrote.
        words: The words of the sentence, each with its tag.

    Returns:
        A tree over these words.

    Raises:
        ValueError: If the line is no tree over so many words: brackets that
            do not match, constituents without words, other tokens, several
            trees or none.
    """
    root = Tree(TOP, [])
    path = [root]
    rest = iter(words)
    for token in line.split():
        if token == WORD:
            word, tag = next(rest, (None, None))
            if word is None:
                raise ValueError("more words than the sentence has")
            path[-1].append(Tree(tag, [word]))
        elif token[0] == "(" and len(token) > 1:
            constituent = Tree(token[1:], [])
            path[-1].append(constituent)
            path.append(constituent)
        elif token[0] == ")" and len(token) > 1:
            if len(path) == 1 or path[-1].label() != token[1:]:
                raise ValueError(f"{token} closes nothing")
            if not len(path.pop()):
                raise ValueError(f"nothing in {token}")
        else:
            raise ValueError(f"{token} is no part of a tree")
    if len(path) > 1:
        raise ValueError(f"({path[-1].label()} is not closed")
    if next(rest, None) is not None:
        raise ValueError("fewer words than the sentence has")
    if len(root) != 1:
        raise ValueError(f"{len(root)} trees")
    return root[0]


def on_one_line(tree: Tree) -> str:
    """Write a tree with its words and tags, as `read_trees` reads it."""
    return " ".join(str(tree).split())


def symbols(tree: Tree) -> set[str]:
    """Collect the brackets of a line, as `--symbols` takes them.

    With "▁", the space before a bracket, in the same piece: a line has as many
    tokens as words and brackets.
    """
    labels = {t.label() for t in tree.subtrees() if not is_word(t)}
    return {f"▁{side}{label}" for label in labels for side in "()"}
