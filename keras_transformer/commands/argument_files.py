"""Reads arguments from files: `@FILE` and `@RECIPE` on the command line.

A file holds words as a shell reads them, and comments after a #. The recipes
are the paper's trainings, in the folder `recipes` of the package.
"""

import pathlib
import shlex

from keras_transformer.config import UserError
from keras_transformer.training.request import RECIPE_SUFFIX, recipes


def with_files(argv: list[str], inside: tuple[str, ...] = ()) -> list[str]:
    """Replace each `@FILE` by the arguments in the file.

    After `@` comes the path of a file or, if there is no such file, the name of
    a recipe, with or without its `.args`. A file may name others. A `--corpus`
    among the other words stands instead of those in files, and one in a later
    file instead of those in earlier ones. `inside` are the files that the words
    are from, each named by the one before.
    """
    arguments: list[str] = []
    has_corpus = any(map(_names_corpus, argv))
    for argument in reversed(argv):
        words = [argument]
        if argument.startswith("@"):
            name = argument[1:]
            if name in inside:
                raise UserError(
                    f"Expected a file of arguments that does not name itself, "
                    f"received @{' with @'.join([*inside, name])}; leave one "
                    "out."
                )
            words = with_files(_read(name), (*inside, name))
            if has_corpus:
                words = _without_corpora(words)
            has_corpus = has_corpus or any(map(_names_corpus, words))
        arguments[:0] = words
    return arguments


def _names_corpus(word: str) -> bool:
    return word.partition("=")[0] == "--corpus"


def _without_corpora(words: list[str]) -> list[str]:
    # Of all flags only `--corpus` accumulates; later ones are to replace it.
    kept, rest = [], iter(words)
    for word in rest:
        if not _names_corpus(word):
            kept.append(word)
        elif "=" not in word:
            next(rest, None)
    return kept


def _read(name: str) -> list[str]:
    """Split a file or a recipe into words."""
    try:
        return shlex.split(_text(name), comments=True)
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
