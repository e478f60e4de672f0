"""Draw a tree that a parser wrote, or F1 by the length of the sentence.

Example:
    python examples/parsing/draw.py tree.png --line 7 \
        --gold text/test.gold --predicted runs/grammar/evaluation/test.predicted
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import brackets
import score
import trees
from nltk.tree import Tree

from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.machine import extras, files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
# Words of a sentence that share a bar.
LENGTHS = 5


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("output", type=pathlib.Path, help="the picture, .png or .svg")
    add("--gold", type=pathlib.Path, required=True, help="right trees")
    add("--predicted", type=pathlib.Path, required=True, help="lines of trees")
    add("--line", type=int, default=1, help="which; default: %(default)s")
    args = parser.parse_args(argv)
    return command_line.run(lambda: draw(args))


def draw(args: argparse.Namespace) -> None:
    """Draw what the parser wrote for a sentence.

    Raises:
        UserError: If there is no such line, or it is not a tree.
    """
    extras.needs("matplotlib", "plot")
    check_ending(args.output)
    gold, lines = score.read_gold(args.gold), score.read_lines(args.predicted)
    count = min(len(gold), len(lines))
    if not 1 <= args.line <= count:
        raise UserError(
            f"Expected --line from 1 to {count}, received {args.line}."
        )
    words = gold[args.line - 1].pos()
    try:
        tree = trees.delinearise(lines[args.line - 1], words)
    except ValueError as error:
        raise UserError(
            f"Expected a tree in line {args.line} of {args.predicted}, found "
            f"none ({error}); choose another line."
        ) from None
    save(tree_picture(tree), args.output)


def tree_picture(tree: Tree) -> "Figure":
    """Draw a tree: the root on top, the words in a row at the bottom."""
    from matplotlib.figure import Figure

    bottom = 1 - tree.height()
    size = (0.55 * len(tree.leaves()) + 0.5, 0.42 * tree.height())
    figure = Figure(size)
    axes = figure.add_subplot()
    axes.axis("off")

    def write(x: float, y: float, text: str, colour: str) -> None:
        box = dict(facecolor="white", edgecolor="none", pad=1)
        style = dict(ha="center", va="center", fontsize=8, bbox=box)
        axes.text(x, y, text, color=colour, **style)

    def place(node: Tree, first: int, depth: int) -> float:
        """Draw a subtree whose first word is `first`; returns its x."""
        if trees.is_word(node):
            axes.plot([first, first], [-depth, bottom], "lightgray", lw=0.7)
            write(first, -depth, node.label(), "gray")
            write(first, bottom, node[0], "black")
            return first
        below = []
        for child in node:
            below.append(place(child, first, depth + 1))
            first += len(child.leaves())
        middle = sum(below) / len(below)
        for x in below:
            lines = axes.plot([middle, x], [-depth, -depth - 1], "gray", lw=0.7)
            lines[0].set_zorder(0)  # Below the labels.
        write(middle, -depth, node.label(), "tab:blue")
        return middle

    place(tree, 0, 0)
    return figure


def f1_by_length(
    lengths: Sequence[int], counts: Sequence[brackets.Counts]
) -> "Figure":
    """Draw labelled F1 over the length of the sentences.

    Args:
        lengths: Words of each sentence.
        counts: What was found in each.
    """
    from matplotlib.figure import Figure

    groups: dict[int, brackets.Counts] = {}
    for length, found in zip(lengths, counts, strict=True):
        group = (length - 1) // LENGTHS
        groups[group] = groups.get(group, brackets.Counts()) + found
    figure = Figure((6.4, 3.2))
    axes = figure.add_subplot()
    order = sorted(groups)
    places = range(len(order))
    axes.plot(places, [groups[g].f1 for g in order], "o-")
    for place, group in zip(places, order, strict=True):
        axes.annotate(
            f"{groups[group].sentences}",
            (place, groups[group].f1),
            textcoords="offset points",
            xytext=(0, -14),
            ha="center",
            fontsize=7,
            color="gray",
        )
    labels = [f"{g * LENGTHS + 1}–{(g + 1) * LENGTHS}" for g in order]
    axes.set_xticks(places, labels, rotation=45)
    axes.set_xlabel("words of the sentence (below a point: sentences)")
    axes.set_ylabel("labelled F1")
    least = min(group.f1 for group in groups.values())
    axes.set_ylim(least - 12, 104)  # Room for the numbers below.
    axes.grid(alpha=0.3)
    return figure


def check_ending(path: pathlib.Path) -> None:
    """Refuse a picture of a format that matplotlib does not write."""
    if path.suffix.lower() not in ENDINGS:
        raise UserError(
            f"Expected a picture that ends in {', '.join(ENDINGS)}, received "
            f"{path}."
        )


def save(figure: "Figure", path: pathlib.Path) -> None:
    """Write a picture whole, in the format of its ending."""
    with files.open_whole(path) as file:
        ending = path.suffix[1:].lower()
        figure.savefig(file, format=ending, dpi=80, bbox_inches="tight")


if __name__ == "__main__":
    sys.exit(main())
