"""The command line: train a run, then use it.

Examples:
    keras-transformer train --preset demo --corpus demo --run-dir runs/demo
    keras-transformer translate --run-dir runs/demo < FILE
    keras-transformer score --run-dir runs/demo --source FILE --target FILE
    keras-transformer evaluate --run-dir runs/demo
    keras-transformer shortlist --run-dir runs/demo --output shortlist.tsv
    keras-transformer view --run-dir runs/demo "TEXT" --output page.html
    keras-transformer export --run-dir runs/demo --output exported/demo
    keras-transformer serve exported/demo
    keras-transformer import --from opus-mt-en-de --run-dir runs/en-de
    keras-transformer distill --teacher RUN --corpus my-text --run-dir NEW
    keras-transformer backtranslate --run-dir RUN --text FILE --output FOLDER

`python -m keras_transformer` is the same. For verbs and flags on Tab, put this
into your ~/.bashrc or ~/.zshrc:
    eval "$(register-python-argcomplete keras-transformer)"
"""

import argparse
import contextlib
import inspect
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata

from keras_transformer import __version__
from keras_transformer.commands import (
    argument_files,
    backtranslate,
    command_line,
    distill,
    evaluate,
    export,
    import_run,
    score,
    serve,
    setting_flags,
    shortlist,
    train,
    translate,
    view,
)
from keras_transformer.commands.command_line import Parser
from keras_transformer.config import UserError
from keras_transformer.machine import extras
from keras_transformer.settings import nearest

# Verb: its flags, its function, a line for --help.
_VERBS = {
    "train": (train.add_flags, train.train, "a corpus in, a run directory out"),
    "translate": (
        translate.add_flags,
        translate.translate,
        "lines of text in, lines of text out",
    ),
    "score": (
        score.add_flags,
        score.score,
        "how likely given translations are",
    ),
    "evaluate": (
        evaluate.add_flags,
        evaluate.evaluate,
        "BLEU and chrF of a test set",
    ),
    "shortlist": (
        shortlist.add_flags,
        shortlist.shortlist,
        "what each piece may become, for a faster search",
    ),
    "distill": (
        distill.add_flags,
        distill.distill,
        "a student that learns from the translations of other runs",
    ),
    "backtranslate": (
        backtranslate.add_flags,
        backtranslate.backtranslate,
        "text of the target language in, pairs to train on out",
    ),
    "view": (
        view.add_flags,
        view.view,
        "a page of what a translation looked at and how it was found",
    ),
    "export": (
        export.add_flags,
        export.export,
        "a SavedModel that takes and returns text",
    ),
    "import": (
        import_run.add_flags,
        import_run.import_run,
        "a model of another system in, a run directory out",
    ),
    "serve": (
        serve.add_flags,
        serve.serve,
        "a server and a page over such a SavedModel",
    ),
}


def _make_parsers() -> tuple[Parser, Mapping[str, Parser]]:
    """Make the parser of the command line, and that of each verb."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="keras-transformer", description=__doc__, formatter_class=raw
    )
    parser.add_argument("--version", action="version", version=_versions())
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, (add_flags, function, summary) in _VERBS.items():
        verb = verbs.add_parser(
            name,
            help=summary,
            description=inspect.getdoc(function),
            formatter_class=raw,
        )
        add_flags(verb)
        verb.set_defaults(verb=function, parser=verb)
    return parser, verbs.choices


def _versions() -> str:
    """Name the versions that a bug report needs, without imports."""
    found = [f"%(prog)s {__version__}"]
    for name, package in ("TensorFlow", "tensorflow"), ("Keras", "keras"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(package)}")
    return ", ".join([*found, f"Python {platform.python_version()}"])


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; wrong arguments end the program with 2."""
    parser, verbs = _make_parsers()
    if "_ARGCOMPLETE" in os.environ:  # The shell asks, on Tab.
        import argcomplete

        argcomplete.autocomplete(parser)
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and argv[0] not in _VERBS and not argv[0].startswith("-"):
        parser.error(
            f"expected a verb, received {argv[0]}{nearest(argv[0], _VERBS)}; "
            f"the verbs are {', '.join(_VERBS)}"
        )
    if argv[:1] in (["train"], ["distill"]):  # Elsewhere an @ may be text.
        argv = argument_files.with_files(argv)
    if argv and argv[0] in verbs:
        # Before argparse, which may miss the flag that was meant.
        setting_flags.check_known(argv[1:], verbs[argv[0]])
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; return an exit code."""

    def command() -> None:
        extras.check_alone()
        args = parse_args(argv)
        average = getattr(args, "average", None)  # Not every verb has it.
        if average is not None and average < 1:
            raise UserError(
                f"Expected --average of at least 1, received {average}."
            )
        with setting_flags.named(args.parser):
            args.verb(args)

    return command_line.run(command)


if __name__ == "__main__":
    sys.exit(main())
