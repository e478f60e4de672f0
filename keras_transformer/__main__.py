"""Use a trained run: translate text, score translations, evaluate it.

Examples:
    python -m keras_transformer translate --run-dir runs/demo < FILE
    python -m keras_transformer score --run-dir runs/demo --source F --target F
    python -m keras_transformer evaluate --run-dir runs/demo
"""

import argparse
import inspect
import pathlib
import sys

from keras_transformer.commands import (
    command_line,
    evaluate,
    score,
    search_flags,
    translate,
)
from keras_transformer.config import UserError

# Verb: its flags, its function, a line for --help.
_VERBS = {
    "translate": (
        translate.add_flags,
        translate.translate,
        "lines of text in, lines of text out",
    ),
    "score": (
        score.add_flags,
        score.score,
        "how likely given translations are",
    ),
    "evaluate": (
        evaluate.add_flags,
        evaluate.evaluate,
        "BLEU and chrF of a test set",
    ),
}


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m keras_transformer",
        description=__doc__,
        formatter_class=raw,
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, (add_flags, function, summary) in _VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=inspect.getdoc(function),
            formatter_class=raw,
        )
        verb.set_defaults(verb=function)
        verb.add_argument(
            "--run-dir", required=True, type=pathlib.Path, help="as in train.py"
        )
        search_flags.add_average_flag(verb)
        add_flags(verb)
    return parser.parse_args(argv)


def main(argv=None) -> int:
    """Run a verb; returns an exit code."""
    args = parse_args(argv)
    if args.average is not None and args.average < 1:
        raise UserError(
            f"Expected --average of at least 1, received {args.average}."
        )
    args.verb(args)
    return command_line.DONE


if __name__ == "__main__":
    sys.exit(command_line.run(main))
