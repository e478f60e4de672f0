"""Turn a treebank into text that keras_transformer learns to parse.

Example:
    python examples/parsing/prepare.py treebank \
        --train wsj/0[2-9]/*.mrg wsj/1?/*.mrg wsj/2[01]/*.mrg \
        --val wsj/22/*.mrg --test wsj/23/*.mrg
"""

import argparse
import logging
import pathlib
import sys
from collections.abc import Iterable, Iterator

import trees
from nltk.tree import Tree

from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.machine import files

SPLITS = ("train", "val", "test")
SYMBOLS = "symbols.txt"

logger = logging.getLogger("keras_transformer")


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=pathlib.Path, help="gets the text")
    for split in SPLITS:
        parser.add_argument(
            f"--{split}",
            type=pathlib.Path,
            nargs="+",
            default=[],
            metavar="FILE",
            help=f"trees of the split {split}",
        )
    args = parser.parse_args(argv)
    return command_line.run(lambda: prepare(args))


def prepare(args: argparse.Namespace) -> None:
    """Write the splits that were named.

    Of each split SPLIT.sentence, SPLIT.tree and SPLIT.gold: the words, the
    linearised tree, and the tree with its tags and words, all line by line.
    The brackets of the training trees go to `symbols.txt`.
    """
    named = [split for split in SPLITS if getattr(args, split)]
    if not named:
        raise UserError(
            "Expected trees of a split, received none; name files with "
            "--train, --val or --test."
        )
    args.folder.mkdir(parents=True, exist_ok=True)
    for split in named:
        write_split(args.folder, split, read_all(getattr(args, split)))


def read_all(paths: Iterable[pathlib.Path]) -> Iterator[Tree | None]:
    """Read and clean trees of several files; None for one without words.

    Raises:
        UserError: If one has a word without a tag; it names file and tree.
    """
    for path in paths:
        for number, tree in enumerate(trees.read_trees(path), start=1):
            try:
                yield trees.clean(tree)
            except UserError as error:
                raise UserError(
                    f"{error} It is tree {number} of {path}."
                ) from None


def write_split(
    folder: pathlib.Path, split: str, given: Iterable[Tree | None]
) -> None:
    """Write the files of a split, whole.

    Args:
        folder: Where they go.
        split: Its name; with `train` come the symbols.
        given: Its trees, as from `read_all`.

    Raises:
        UserError: If there are none.
    """
    cleaned = list(given)
    kept = [tree for tree in cleaned if tree is not None]
    if not kept:
        raise UserError(
            f"Expected trees for {split}, found none; check the files."
        )
    for ending, lines in {
        "sentence": [" ".join(tree.leaves()) for tree in kept],
        "tree": list(map(trees.linearise, kept)),
        "gold": list(map(trees.on_one_line, kept)),
    }.items():
        write_lines(folder / f"{split}.{ending}", lines)
    if split == "train":
        found = sorted(set().union(*map(trees.symbols, kept)))
        write_lines(folder / SYMBOLS, found)
    empty = len(cleaned) - len(kept)
    logger.info(
        "%s: %d trees%s.",
        split,
        len(kept),
        f", and {empty} without words left out" if empty else "",
    )


def write_lines(path: pathlib.Path, lines: Iterable[str]) -> None:
    """Write a file of lines, whole."""
    files.write_text(path, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
