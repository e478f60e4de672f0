"""`keras-transformer train`."""

import argparse
import contextlib
import pathlib
from typing import Any

from keras_transformer.commands import command_line, setting_flags
from keras_transformer.config import SETTINGS
from keras_transformer.presets import PRESETS
from keras_transformer.training.request import SESSION_SETTINGS, understand


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags; training shares none with other verbs."""
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, help="default: runs/PRESET")
    add(
        "--preset",
        help=f"{', '.join(PRESETS)}; default: by the number of pairs",
    )
    add(
        "--corpus",
        action="append",
        metavar="NAME[:WEIGHT][:<TAG>]",
        help="demo (in your language), a folder of SPLIT.LANG files, or "
        "tfds:NAME[/CONFIG]; given "
        "several times, train on all of them; WEIGHT 0.5 uses every second "
        "pair, 2 uses each pair twice; <TAG> becomes the first word of every "
        "source",
    )
    add("--source-lang", help="default: en")
    add("--target-lang", help="default: de")
    add("--train-split", help="default: train")
    add("--validation-split", help="default: val")
    add(
        "--tokenizer",
        type=pathlib.Path,
        metavar="FILE",
        help="a sentencepiece model made elsewhere, instead of a new one",
    )
    add(
        "--symbols",
        type=pathlib.Path,
        metavar="FILE",
        help="strings, one a line, that stay one piece in a new vocabulary",
    )
    add(
        "--init-from",
        type=pathlib.Path,
        metavar="RUN",
        help="start with the weights and the vocabulary of another run",
    )
    setting_flags.add(parser, SETTINGS.values(), default="")
    setting_flags.add(parser, SESSION_SETTINGS)
    add("--dry-run", action="store_true", help="print the costs, train nothing")


def run(args: argparse.Namespace) -> None:
    """Train a Transformer: section 5 of the paper as a recipe.

    Example:
        keras-transformer train --preset demo --corpus demo --run-dir runs/demo

    To resume from the last checkpoint, --run-dir is enough. Ctrl-C and SIGTERM
    save a checkpoint and stop, with exit codes 130 and 0; only a
    finished run has a final.weights.h5. Settings that you leave out come from
    the preset. @FILE inserts the arguments in a file, and a name such as
    @wmt14-en-de-base those of a recipe of this package. --dry-run prints what
    the training would cost.
    """
    # Report what is plainly wrong before TensorFlow is loaded.
    asked = understand(**arguments_of(args))
    command_line.quiet_tensorflow()
    from keras_transformer.run import carry_out, estimate

    if args.dry_run:
        print(estimate(asked))
        return
    # After SIGTERM the checkpoint is written, and nothing has failed.
    with contextlib.suppress(SystemExit):
        carry_out(asked)


def arguments_of(args: argparse.Namespace) -> dict[str, Any]:
    """Collect the arguments of `keras_transformer.train` from the flags."""
    others = {"verb", "parser", "dry_run"}
    return {
        name: value
        for name, value in vars(args).items()
        if value is not None and name not in others
    }
