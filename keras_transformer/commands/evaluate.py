"""`keras-transformer evaluate`."""

import argparse
import pathlib

from keras_transformer.commands import command_line, search_flags
from keras_transformer.commands.display import SentenceDisplay
from keras_transformer.config import RUN_SEARCH
from keras_transformer.machine import devices
from keras_transformer.runs.run_config import RunConfig


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what the verb alone has."""
    search_flags.add_run_flags(parser)
    search_flags.add_beam_flags(parser)
    search_flags.add_speed_flags(parser)
    add = parser.add_argument
    add(
        "--corpus",
        help="as in train, or a test set of sacreBLEU's such as "
        "sacrebleu:wmt14/full; default: the run's own",
    )
    add("--split", default="test", help="default: %(default)s")
    add(
        "--lowercase",
        action="store_true",
        help="score lower-cased text too, plain and tokenised by Moses",
    )
    add("--json", type=pathlib.Path, help="write the results here too")


def evaluate(args: argparse.Namespace) -> None:
    """Translate every sentence of a split and print its scores.

    The translations go to RUN/evaluation/SPLIT.LANG.txt and all figures to
    RUN/evaluation/SPLIT.json, in place of those of an earlier evaluation.
    """
    run = RunConfig.load(args.run_dir)
    search = search_flags.search_from(args, run.search)
    searches = search_flags.searches_of(args, run)
    command_line.quiet_tensorflow()
    devices.share_cores(searches)
    from keras_transformer.run import Run

    with SentenceDisplay() as display:
        result = Run(args.run_dir).evaluate(
            args.split,
            args.corpus,
            average=args.average,
            **{name: getattr(search, name) for name in RUN_SEARCH},
            lowercase=args.lowercase,
            json_file=args.json,
            parallel=args.parallel,
            precision=args.precision,
            progress=display.of_all,
        )
    for score in result.scores.values():
        print(f"{score.value:6.2f}  {score.name}  {score.signature}")
    exported = f"exported/{args.run_dir.resolve().name}"
    command_line.say_next(
        "export", "--run-dir", args.run_dir, "--output", exported
    )
