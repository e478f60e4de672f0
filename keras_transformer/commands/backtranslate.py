"""`keras-transformer backtranslate`."""

import argparse
import pathlib
from typing import Any

from keras_transformer import synthetic
from keras_transformer.commands import flags


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(parser)
    path: dict[str, Any] = {"type": pathlib.Path, "required": True}
    said = "lines in the language that the run reads, plain or gzipped"
    parser.add_argument("--text", metavar="FILE", help=said, **path)
    said = "the folder to write, a corpus with the split train"
    parser.add_argument("--output", metavar="FOLDER", help=said, **path)
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

    The run of --run-dir translates in the reverse direction: the text becomes
    the target side of a corpus, its translations the source side. The same
    command again resumes after the last 4,000 texts that were translated.
    """
    reverse, search = flags.prepare(args)
    how = {"parallel": args.parallel, "sampling": search.sampling}
    how |= search.kept_by_run()
    synthetic.backtranslate(reverse, args.text, args.output, **how)
