"""Parse a split with a run, score the trees, and export the run.

Example:
    python examples/parsing/score.py --run-dir runs/grammar --split test \
        --export exported/grammar
    python examples/parsing/score.py --gold text/test.gold --predicted FILE
"""

import argparse
import dataclasses
import json
import logging
import pathlib
import sys

import brackets
import trees
from nltk.tree import Tree

from keras_transformer.commands import command_line
from keras_transformer.config import UserError
from keras_transformer.data.corpora import parts_of
from keras_transformer.exporting import serving_kit
from keras_transformer.machine import extras, files
from keras_transformer.runs import layout
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation.display import SentenceDisplay

logger = logging.getLogger("keras_transformer")


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, help="a trained parser")
    add("--split", default="test", help="default: %(default)s")
    add("--gold", type=pathlib.Path, help="in place of --run-dir: right trees")
    add("--predicted", type=pathlib.Path, help="with --gold: trees to score")
    add("--json", type=pathlib.Path, help="write the figures here too")
    add("--by-length", type=pathlib.Path, help="draw F1 by length, as .png")
    add("--export", type=pathlib.Path, help="write a SavedModel here")
    args = parser.parse_args(argv)
    if (args.run_dir is None) == (args.gold is None):
        parser.error("expected either --run-dir or --gold")
    if (args.gold is None) != (args.predicted is None):
        parser.error("expected --gold and --predicted together")
    if args.export and not args.run_dir:
        parser.error("expected --run-dir with --export")
    return command_line.run(lambda: score(args))


def score(args: argparse.Namespace) -> None:
    """Print labelled recall, precision and F1, and what else EVALB prints."""
    if args.by_length:
        extras.needs("matplotlib", "plot")
        import draw

        draw.check_ending(args.by_length)
    if args.export:  # A refusal belongs before the parsing.
        serving_kit.Export().path(args.export)
    if args.run_dir:
        # Of a mixture, only the first corpus has splits beside train.
        first, *_ = parts_of(RunConfig.load(args.run_dir).corpus)
        folder = pathlib.Path(first.name)
        gold = read_gold(folder / f"{args.split}.gold")
        predicted = parse(args.run_dir, args.split, gold)
    else:
        gold = read_gold(args.gold)
        predicted = read_lines(args.predicted)
    if len(gold) != len(predicted):
        raise UserError(
            f"Expected a line for each of {len(gold)} trees, found "
            f"{len(predicted)}; score the same split."
        )
    every = [
        brackets.compare(*pair) for pair in zip(gold, predicted, strict=True)
    ]
    total = sum(every, brackets.Counts())
    report(total)
    if args.json:
        figures = {
            "recall": total.recall,
            "precision": total.precision,
            "f1": total.f1,
            **dataclasses.asdict(total),
        }
        files.write_text(args.json, json.dumps(figures, indent=2) + "\n")
    if args.by_length:
        lengths = [len(tree.leaves()) for tree in gold]
        draw.save(draw.f1_by_length(lengths, every), args.by_length)
    if args.export:
        from keras_transformer.run import Run

        print(Run(args.run_dir).export(args.export))


def parse(run_dir: pathlib.Path, split: str, gold: list[Tree]) -> list[str]:
    """Translate the sentences of the right trees, as the run searches.

    The lines go to `evaluation/SPLIT.predicted` of the run directory too.
    """
    command_line.quiet_tensorflow()
    from keras_transformer.run import Run

    folder = run_dir / layout.EVALUATION
    folder.mkdir(exist_ok=True)
    translator = Run(run_dir).translator()
    with SentenceDisplay() as display:
        predicted = translator.translate(
            [" ".join(tree.leaves()) for tree in gold],
            progress=display.of_all,
        )
    path = folder / f"{split}.predicted"
    files.write_text(path, "".join(f"{line}\n" for line in predicted))
    logger.info("Wrote %s.", path)
    return predicted


def read_gold(path: pathlib.Path) -> list[Tree]:
    """Read the right trees of a split, as `prepare.py` wrote them."""
    found = list(trees.read_trees(path))
    if not found:
        raise UserError(f"Expected trees in {path}, found none.")
    return found


def read_lines(path: pathlib.Path) -> list[str]:
    """Read the lines of a file.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return text.removesuffix("\n").split("\n") if text else []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"Expected UTF-8 text, cannot read {path} "
            f"({type(error).__name__}); check the file."
        ) from None


def report(total: brackets.Counts) -> None:
    """Print the figures of all sentences."""
    print(f"{total.recall:6.2f}  labelled recall")
    print(f"{total.precision:6.2f}  labelled precision")
    print(f"{total.f1:6.2f}  labelled F1")
    print(f"{total.exact:6d}  exact of {total.sentences} trees")
    print(f"{total.malformed:6d}  malformed, counted as without constituents")


if __name__ == "__main__":
    sys.exit(main())
