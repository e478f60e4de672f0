"""`@FILE` on a command line: the arguments that a file holds."""

import pathlib
import shlex

from keras_transformer.config import UserError


def with_files(argv: list[str]) -> list[str]:
    """Put the arguments that a file holds in the place of its `@FILE`."""
    arguments = []
    for argument in argv:
        if not argument.startswith("@"):
            arguments.append(argument)
            continue
        path = pathlib.Path(argument[1:])
        try:
            text = path.read_text(encoding="utf-8")
            arguments += shlex.split(text, comments=True)
        except OSError as error:
            raise UserError(
                f"Expected a file of arguments after @, received {path} "
                f"({error.strerror}); the recipes are in recipes/."
            ) from None
        except ValueError as error:
            raise UserError(
                f"Expected arguments and # comments in {path}, found "
                f"something else ({error}); correct the file."
            ) from None
    return arguments
