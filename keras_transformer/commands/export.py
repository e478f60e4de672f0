"""`keras-transformer export`."""

import argparse
import pathlib

from keras_transformer.commands import command_line, flags
from keras_transformer.exporting.serving_kit import EXPORT
from keras_transformer.runs.weights import WEIGHTS

_OF_EVERY_FORMAT = "verb parser run_dir output format precision average".split()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser, *(x for x in WEIGHTS if x != "precision"))
    add = parser.add_argument
    said = "folder of all versions; this one goes to OUTPUT/VERSION"
    add("--output", required=True, type=pathlib.Path, help=said)
    add(
        "--format",
        choices=("savedmodel", "ctranslate2"),
        default="savedmodel",
        help="ctranslate2 needs the package of that name, writes to OUTPUT "
        "itself, and takes its search settings when it translates; default: "
        "%(default)s",
    )
    flags.add(parser, EXPORT)
    flags.add_search_flags(parser, "4, or --beam-size if that is less")
    flags.add_sampling_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Turn a run directory into a SavedModel that translates text.

    Example:
        keras-transformer export --run-dir runs/demo --output exported/demo

    `--format ctranslate2` writes a CTranslate2 model instead.
    """
    if args.format == "ctranslate2":
        _export_to_ctranslate2(args)
        return
    given = flags.given(args, EXPORT)
    # Not what the loaded weights multiply in, which are frozen later.
    args.precision = None
    run, search = flags.prepare(args, n_best=4)
    print(run.export(args.output, search=search, **given))
    command_line.say_next("serve", args.output)


def _export_to_ctranslate2(args: argparse.Namespace) -> None:
    for name, value in vars(args).items():
        if name in _OF_EVERY_FORMAT or value is None or value is False:
            continue
        args.parser.error(
            f"{flags.flag(name)} belongs to --format savedmodel; leave it out "
            "and tell CTranslate2 when it translates"
        )
    precision, args.precision = args.precision or "float32", None
    run = flags.prepare(args)[0]
    from keras_transformer.exporting import ctranslate2

    ctranslate2.check(args.output, precision)
    print(ctranslate2.export(run.translator(), args.output, precision))
