"""`keras-transformer backtranslate`."""

import argparse
import pathlib

from keras_transformer.commands import flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser)
    add = parser.add_argument
    add(
        "--text",
        type=pathlib.Path,
        required=True,
        metavar="FILE",
        help="lines of text in the language that the run of --run-dir reads, "
        "plain or gzipped",
    )
    add(
        "--output",
        type=pathlib.Path,
        required=True,
        metavar="FOLDER",
        help="the corpus to write, with the split train",
    )
    flags.add_beam_flags(parser)
    flags.add_sampling_flags(parser)
    flags.add_parallel_flag(parser)


def run(args: argparse.Namespace) -> None:
    r"""Pair text in the target language with its translation back.

    Example:
        keras-transformer backtranslate --run-dir runs/fr-en --text more.fr \
            --output backtranslated
        keras-transformer train --corpus my-text \
            --corpus "backtranslated:0.5:<bt>" --source-lang en \
            --target-lang fr --run-dir runs/en-fr

    The run of --run-dir translates in the reverse direction. The text becomes
    the target side of a corpus, its translations become the source side. The
    same command again resumes after the last 4,000 texts that were translated.
    """
    reverse, search = flags.prepare(args)
    reverse.before_loading()
    from keras_transformer import synthetic

    synthetic.backtranslate(
        reverse,
        args.text,
        args.output,
        parallel=args.parallel,
        sampling=search.sampling,
        **search.kept_by_run(),
    )
