"""Reads arguments from files: `@FILE` and `@RECIPE` on the command line.

A file holds words as a shell reads them, and comments after a #. The recipes
are the paper's trainings, in the folder `recipes` of the package.
"""

import pathlib
import shlex

from keras_transformer.config import UserError
from keras_transformer.training.request import RECIPE_SUFFIX, recipes


def with_files(argv: list[str]) -> list[str]:
    """Replace each `@FILE` by the arguments in the file.

    Args:
        argv: The words of a command line. After `@` comes the path of a file
            or, if there is no such file, the name of a recipe, with or without
            its `.args`.

    Returns:
        The words, with those of the files in place. A `--corpus` among the
        words stands instead of those in files.

    Raises:
        UserError: If there is neither, or it cannot be read.
    """
    arguments = []
    has_corpus = any(word.partition("=")[0] == "--corpus" for word in argv)
    for argument in argv:
        if argument.startswith("@"):
            words = _read(argument[1:])
            arguments += _without_corpora(words) if has_corpus else words
        else:
            arguments.append(argument)
    return arguments


def _without_corpora(words: list[str]) -> list[str]:
    """Leave out the corpora of a file, which others take the place of.

    They would be mixed: only this flag adds to itself.
    """
    kept, rest = [], iter(words)
    for word in rest:
        if word == "--corpus":
            next(rest, None)
        elif not word.startswith("--corpus="):
            kept.append(word)
    return kept


def _read(name: str) -> list[str]:
    """Split a file or a recipe into words."""
    try:
        text = _text(name)
        return shlex.split(text, comments=True)
    except OSError as error:
        raise UserError(
            f"Expected a file of arguments or a recipe, received @{name} "
            f"({error.strerror}); the recipes are {', '.join(recipes())}."
        ) from None
    except ValueError as error:
        raise UserError(
            f"Expected arguments and # comments in {name}, found something "
            f"else ({error}); correct the file."
        ) from None


def _text(name: str) -> str:
    try:
        return pathlib.Path(name).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        known = recipes()
        recipe = name.removesuffix(RECIPE_SUFFIX)
        if recipe not in known:
            raise
        return known[recipe]
