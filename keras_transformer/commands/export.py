"""`keras-transformer export`."""

import argparse
import pathlib

from keras_transformer.commands import command_line, flags
from keras_transformer.config import EXPORT_PRECISIONS
from keras_transformer.machine import files

_OF_EVERY_FORMAT = (
    *("verb", "parser", "run_dir", "output"),
    *("format", "quantize", "average"),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this verb has."""
    flags.add_run_flags(
        parser, "average", "ensemble", "ensemble_mean", "shortlist"
    )
    add = parser.add_argument
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
        help="ctranslate2 needs the package of that name, writes to OUTPUT "
        "itself, and takes its search settings when it translates; default: "
        "%(default)s",
    )
    add(
        "--quantize",
        choices=EXPORT_PRECISIONS,
        default="float32",
        help="how weights are stored; float16 (half the size) computes in "
        "float32; bfloat16 (half) and int8 (a quarter) also multiply in that "
        "type, which is faster where the processor can; default: %(default)s",
    )
    add(
        "--portable",
        action="store_true",
        help="use only operators that every TensorFlow has, for GPUs and "
        "processors other than x86-64; slower, and not with int8",
    )
    add(
        "--version",
        type=int,
        default=1,
        help="number of this export; default: %(default)s",
    )
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
    flags.add_search_flags(parser, "4, or --beam-size if that is less")
    flags.add_sampling_flags(parser)


def run(args: argparse.Namespace) -> None:
    """Turn a run directory into a SavedModel that translates text.

    Example:
        keras-transformer export --run-dir runs/demo --output exported/demo

    `--format ctranslate2` writes a CTranslate2 model instead.
    """
    check_format(args)
    run, search = flags.prepare(args, n_best=4)
    if args.format == "ctranslate2":
        run.before_loading()
        from keras_transformer.exporting import ctranslate2

        ctranslate2.check_output(args.output)
        print(ctranslate2.export(run.translator(), args.output, args.quantize))
        return
    # Before TensorFlow, so that a misspelt argument shows at once.
    files.version_path(args.output, args.version)
    run.before_loading()
    from keras_transformer.exporting.serving_kit import ServingKit

    kit = ServingKit.plan(args.output, args.name, args.max_batch_size)
    path = run.export(
        *(args.output, args.version, search),
        kit=kit,
        quantization=args.quantize,
        portable=args.portable,
    )
    print(path)
    command_line.say_next("serve", args.output)


def check_format(args: argparse.Namespace) -> None:
    """Refuse flags that belong to the other format."""
    parser = args.parser
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
        if args.quantize == "bfloat16":
            parser.error(
                "--quantize bfloat16 belongs to --format savedmodel; ask for "
                "int8 or float16"
            )
    elif args.quantize == "int8" and args.portable:
        parser.error(
            "--quantize int8 needs operators that not every TensorFlow has; "
            "leave out --portable or ask for another"
        )
