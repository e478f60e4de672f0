"""Turn a run directory into a SavedModel that translates text.

Example:
    python export.py --run-dir runs/demo --output exported/demo
"""

import argparse
import logging
import pathlib
import sys
from collections.abc import Sequence

from keras_transformer import command_line, config
from keras_transformer.config import UserError

logger = logging.getLogger("keras_transformer")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; wrong arguments end the program with 2."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--run-dir", required=True, type=pathlib.Path, help="as in train.py")
    add(
        "--output",
        required=True,
        type=pathlib.Path,
        help="folder of all versions; this one goes to OUTPUT/VERSION",
    )
    add("--version", type=int, default=1, help="default: %(default)s")
    add(
        "--average",
        type=int,
        help="newest checkpoints averaged; default: as many as train.py did",
    )
    add(
        "--beam-size",
        type=int,
        default=4,
        help="1 is greedy; default: %(default)s",
    )
    add(
        "--length-penalty",
        type=float,
        default=0.6,
        help="alpha of ((5 + length) / 6)^alpha; default: %(default)s",
    )
    add(
        "--n-best",
        type=int,
        help="translations in the signature n_best; default: 4, or the beam "
        "size if that is smaller",
    )
    add(
        "--max-source-length",
        type=int,
        default=256,
        help="tokens after which a source is cut; default: %(default)s",
    )
    add(
        "--min-length",
        type=int,
        default=0,
        help="fewest tokens of a translation; default: %(default)s",
    )
    add(
        "--max-length",
        type=int,
        help="most tokens of a translation; default: source length + 50",
    )
    return parser.parse_args(argv)


def export(args: argparse.Namespace) -> None:
    """Load, write, and print where to."""
    # Takes seconds, which --help and a misspelt argument need not wait for.
    command_line.quiet_tensorflow()
    from keras_transformer import serving
    from keras_transformer.translator import SearchOptions, Translator

    n_best = min(4, args.beam_size) if args.n_best is None else args.n_best
    try:
        options = SearchOptions(
            beam_size=args.beam_size,
            length_penalty=args.length_penalty,
            n_best=n_best,
            min_length=args.min_length,
            max_length=args.max_length,
            max_source_length=args.max_source_length,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    # An export that cannot succeed ends before the model is loaded.
    serving.version_path(args.output, args.version)
    average = args.average
    if average is None:
        average = config.RunConfig.load(args.run_dir).training.average
    translator = Translator.from_run(args.run_dir, average)
    logger.info("Tracing the signatures of %s", args.run_dir)
    path = serving.export(translator, args.output, args.version, options)
    print(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = parse_args(argv)
    return command_line.run(lambda: export(args))


if __name__ == "__main__":
    sys.exit(main())
