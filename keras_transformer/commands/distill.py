"""`keras-transformer distill`."""

import argparse
import pathlib

from keras_transformer import synthetic
from keras_transformer.commands import command_line, flags, train
from keras_transformer.run import Run
from keras_transformer.training.request import with_recipes


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flag that only this verb has, and those of a training."""
    parser.add_argument(
        "--teacher",
        action="append",
        required=True,
        type=pathlib.Path,
        metavar="RUN",
        help="a run that translates the training text; several do it together",
    )
    train.add_settings(parser)


def run(args: argparse.Namespace) -> None:
    r"""Train a student on its teacher's translations of a training text.

    Example:
        keras-transformer distill --teacher runs/seed-1 --teacher runs/seed-2 \
            --corpus my-text --preset tiny --run-dir runs/student

    The teacher's translations are kept in RUN_DIR/distilled. The same command
    again resumes after the last 4,000 texts that were translated. All other
    flags are those of train, of which --run-dir is required.
    """
    arguments = flags.given(args, train.FIELDS)
    first, *others = args.teacher
    if args.run_dir is None:  # A recipe may name it.
        arguments = with_recipes(arguments)
        if "run_dir" not in arguments:
            args.parser.error("expected --run-dir, a folder for the student")
    teacher = Run(first, others)
    command_line.quiet_tensorflow()
    synthetic.distill(teacher, **arguments)
