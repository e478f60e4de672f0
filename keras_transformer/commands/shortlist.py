"""`keras-transformer shortlist`."""

import argparse
import pathlib

from keras_transformer.commands import command_line


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    add = parser.add_argument
    add("--run-dir", required=True, type=pathlib.Path, help="the run directory")
    add(
        "--corpus",
        help="other text to learn from, a corpus as in train; an imported run "
        "has none of its own",
    )
    add(
        "--output",
        required=True,
        type=pathlib.Path,
        metavar="FILE",
        help="the file to write",
    )
    add(
        "--pairs",
        type=int,
        default=50_000,
        metavar="N",
        help="learn from at most the first N training pairs; default: "
        "%(default)s",
    )


def run(args: argparse.Namespace) -> None:
    """Learn from a run's training text what each source piece may become.

    The verbs translate, evaluate, backtranslate and export take the file as
    --shortlist. A search then scores only the candidates of its sources, not
    the whole vocabulary. CTranslate2 reads the file too, as vmap.txt.
    """
    command_line.quiet_tensorflow()
    from keras_transformer.run import Run

    run = Run(args.run_dir)
    path = run.shortlist(args.output, args.corpus, pairs=args.pairs)
    print(path)
    more = ("--run-dir", args.run_dir, "--shortlist", path)
    command_line.say_next("evaluate", *more)
