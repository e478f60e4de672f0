"""Turn a run directory into a SavedModel that translates text.

Example:
    python export.py --run-dir runs/demo --output exported/demo

`--format ctranslate2` writes a CTranslate2 model instead.
"""

import argparse
import logging
import pathlib
import sys
from collections.abc import Sequence

from keras_transformer.commands import command_line, search_flags

logger = logging.getLogger("keras_transformer")

_OF_EVERY_FORMAT = ("run_dir", "output", "format", "quantize", "average")


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
    add(
        "--format",
        choices=("savedmodel", "ctranslate2"),
        default="savedmodel",
        help="ctranslate2 needs that package, goes to OUTPUT itself and is "
        "told how to search when it translates; default: %(default)s",
    )
    add(
        "--quantize",
        choices=("float32", "float16", "int8"),
        default="float32",
        help="how weights are stored; float16 takes half the space and "
        "computes in float32, int8 is for ctranslate2; default: %(default)s",
    )
    add("--version", type=int, default=1, help="default: %(default)s")
    add(
        "--name",
        help="what TensorFlow Serving calls the model; default: the name of "
        "the folder OUTPUT",
    )
    add(
        "--max-batch-size",
        type=int,
        help="texts that TensorFlow Serving translates together; default: 32, "
        "or what OUTPUT/batching_parameters.txt says",
    )
    search_flags.add_average_flag(parser)
    search_flags.add_search_flags(parser, n_best=None)
    args = parser.parse_args(argv)
    if args.format == "ctranslate2":
        for name, value in vars(args).items():
            if name not in _OF_EVERY_FORMAT and value != parser.get_default(
                name
            ):
                parser.error(
                    f"--{name.replace('_', '-')} belongs to --format "
                    "savedmodel; leave it out and tell CTranslate2 when it "
                    "translates"
                )
    elif args.quantize == "int8":
        parser.error(
            "--quantize int8 belongs to --format ctranslate2, since TensorFlow "
            "computes no faster in int8; ask for float16 or the other format"
        )
    return args


def export(args: argparse.Namespace) -> None:
    """Load, write, and print where to."""
    options = search_flags.options_from(args)
    # Takes seconds, which --help and a misspelt argument need not wait for.
    command_line.quiet_tensorflow()
    if args.format == "ctranslate2":
        return export_to_ctranslate2(args)
    from keras_transformer.exporting import saved_model as serving
    from keras_transformer.exporting.serving_kit import ServingKit
    from keras_transformer.translation.translator import Translator

    # An export that cannot succeed ends before the model is loaded.
    serving.version_path(args.output, args.version)
    kit = ServingKit.plan(args.output, args.name, args.max_batch_size)
    translator = Translator.from_run(args.run_dir, args.average)
    logger.info("Tracing the signatures of %s", args.run_dir)
    path = serving.export(
        translator, args.output, args.version, options, kit, args.quantize
    )
    print(path)


def export_to_ctranslate2(args: argparse.Namespace) -> None:
    """As `export`, for the other format."""
    from keras_transformer.exporting import ctranslate2 as ctranslate2_export
    from keras_transformer.translation.translator import Translator

    ctranslate2_export.check_output(args.output)
    translator = Translator.from_run(args.run_dir, args.average)
    print(ctranslate2_export.export(translator, args.output, args.quantize))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = parse_args(argv)
    return command_line.run(lambda: export(args))


if __name__ == "__main__":
    sys.exit(main())
