"""`keras-transformer distill`."""

import argparse
import contextlib
import pathlib

from keras_transformer.commands import command_line, train
from keras_transformer.runs.layout import DISTILLED
from keras_transformer.training.request import understand


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has, and all of a training."""
    parser.add_argument(
        "--teacher",
        action="append",
        required=True,
        type=pathlib.Path,
        metavar="RUN",
        help="a run that translates the training text; given several times, "
        "the runs translate together",
    )
    train.add_flags(parser)


def run(args: argparse.Namespace) -> None:
    r"""Train a student on its teacher's translations of a training text.

    Example:
        keras-transformer distill --teacher runs/seed-1 --teacher runs/seed-2 \
            --corpus my-text --preset tiny --run-dir runs/student

    The teacher's translations are kept in RUN_DIR/distilled. The same command
    again resumes after the last 4,000 texts that were translated. All other
    flags are those of train, of which --run-dir is required.
    """
    if args.run_dir is None:
        args.parser.error("expected --run-dir, a folder for the student")
    arguments = train.given_arguments(args)
    first, *others = arguments.pop("teacher")
    # Report what is plainly wrong before TensorFlow is loaded.
    run_dir = arguments.pop("run_dir")
    folder = run_dir / DISTILLED
    understand(**arguments, run_dir=folder)
    from keras_transformer.run import Run

    teacher = Run(first, others)
    command_line.quiet_tensorflow()
    from keras_transformer.synthetic import distill, with_vocabulary
    from keras_transformer.training import dry_run

    if args.dry_run:
        of_student = with_vocabulary(teacher, arguments)
        print(dry_run.costs_of(understand(**of_student, run_dir=folder)))
        return
    # After SIGTERM the checkpoint is written, and nothing has failed.
    with contextlib.suppress(SystemExit):
        distill(teacher, run_dir, **arguments)
