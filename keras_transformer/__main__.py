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

`python -m keras_transformer` is the same.
"""

import argparse
import contextlib
import importlib
import inspect
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from keras_transformer import __version__
from keras_transformer.commands import command_line
from keras_transformer.commands.command_line import Parser
from keras_transformer.settings import nearest

# Each has a module of its name in `commands`, imported only when it is needed.
VERBS = (
    "train translate score evaluate shortlist distill backtranslate view "
    "export import serve"
).split()


def _versions() -> str:
    """Name the versions that a bug report needs, without imports."""
    versions = [f"%(prog)s {__version__}"]
    for name, package in ("TensorFlow", "tensorflow"), ("Keras", "keras"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(package)}")
    return ", ".join([*versions, f"Python {platform.python_version()}"])


def module_of(verb: str) -> Any:
    """Import the module of a verb."""
    module = "import_run" if verb == "import" else verb  # A word of Python.
    return importlib.import_module(f"keras_transformer.commands.{module}")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; wrong arguments end the program with 2."""
    words = sys.argv[1:] if argv is None else list(argv)
    name = words[0] if words else ""
    parser = Parser(prog="keras-transformer", description=__doc__)
    parser.add_argument("--version", action="version", version=_versions())
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for each in (name,) if name in VERBS else VERBS:
        module = module_of(each)
        about = inspect.getdoc(module.run) or ""  # Not under python -OO.
        verb = verbs.add_parser(
            each, help=about.partition("\n")[0], description=about
        )
        module.add_flags(verb)
        verb.set_defaults(verb=module.run, parser=verb)
    if name in VERBS:
        words, recipes = words[1:], []
        if name in ("train", "distill"):  # Elsewhere an @ may be text.
            recipes = [word for word in words if word.startswith("@")]
            words = [word for word in words if word not in recipes]
        args = verbs.choices[name].read(words)
        if recipes:
            args.recipe = [word[1:] for word in recipes]
        return args
    if name and not name.startswith("-"):
        parser.error(
            f"expected a verb, received {name}{nearest(name, VERBS)}; "
            f"the verbs are {', '.join(VERBS)}"
        )
    return parser.read(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; return an exit code."""

    def command() -> None:
        args = parse_args(argv)
        try:
            args.verb(args)
        except SystemExit as end:
            if end.code:  # After SIGTERM a checkpoint is written: all is well.
                raise

    return command_line.run(command)


if __name__ == "__main__":
    sys.exit(main())
