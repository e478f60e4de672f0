"""`keras-transformer import`."""

import argparse
import pathlib

from keras_transformer.commands import command_line


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    add = parser.add_argument
    add(
        "--from",
        required=True,
        type=pathlib.Path,
        dest="directory",
        metavar="DIR",
        help="folder of a model that another system has trained",
    )
    said = "the new run directory; must be empty or not exist"
    add("--run-dir", required=True, type=pathlib.Path, help=said)
    add("--source-lang", help="default: as the files say")
    add("--target-lang", help="default: as the files say")


def run(args: argparse.Namespace) -> None:
    """Turn a model that another system has trained into a run directory.

    Example:
        keras-transformer import --from opus-mt-en-de --run-dir runs/en-de

    The other verbs take it like any other run: translate, evaluate, score,
    view, export, and train --init-from.
    """
    command_line.quiet_tensorflow()
    from keras_transformer.importing.run_directory import import_run

    languages = args.source_lang, args.target_lang
    print(import_run(args.directory, args.run_dir, *languages))
    command_line.say_next("translate", "--run-dir", args.run_dir, "FILE")
