"""`keras-transformer train`."""

import argparse

from keras_transformer.commands import command_line, flags
from keras_transformer.config import SETTINGS
from keras_transformer.training.request import SESSION_SETTINGS, understand

# The arguments of `keras_transformer.train`.
FIELDS = (*SESSION_SETTINGS.values(), *SETTINGS.values())


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a training, and the one that only this verb has."""
    add_settings(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the costs, train nothing"
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting of a session and of a training."""
    flags.add(parser, SESSION_SETTINGS.values())
    flags.add(parser, SETTINGS.values(), default="")


def run(args: argparse.Namespace) -> None:
    """Train a Transformer: section 5 of the paper as a recipe.

    Example:
        keras-transformer train --preset demo --corpus demo --run-dir runs/demo

    To resume from the last checkpoint, --run-dir is enough. Ctrl-C, SIGTERM and
    a closed terminal save a checkpoint and stop, with exit codes 130, 0 and 0;
    only a finished run has a final.weights.h5. Settings that you leave out come
    from the preset. @FILE inserts the arguments in a file, and a name such as
    @wmt14-en-de-base those of a recipe of this package. --dry-run prints what
    the training would cost.
    """
    # Report what is plainly wrong before TensorFlow is loaded.
    session = understand(**flags.given(args, FIELDS))
    command_line.quiet_tensorflow()
    from keras_transformer.training import dry_run, loop

    if args.dry_run:
        print(dry_run.costs_of(session))
        return
    loop.train(session)
    command_line.say_next("evaluate", "--run-dir", session.run_dir)
