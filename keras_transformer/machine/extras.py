"""Packages that an extra of this one installs, such as `[demo]`.

Training, translating, evaluating and exporting need none of them.
"""

import importlib
from importlib import metadata
from typing import Any

from keras_transformer.config import UserError
from keras_transformer.machine.distribution import NAME


def needs(module: str, extra: str) -> Any:
    """Import what an extra brings.

    Args:
        module: Dotted name of a module.
        extra: Name of the extra of this package that installs it.

    Returns:
        The module.

    Raises:
        UserError: If it cannot be imported; it names the command that helps.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"Expected the package {module.partition('.')[0]}, cannot import "
            f"it ({error}); install it with {install_command(extra)}."
        ) from None


def install_command(extra: str) -> str:
    """Name the command that installs an extra, for an error.

    Args:
        extra: Name of an extra of this package.
    """
    try:
        metadata.version(NAME)
    except metadata.PackageNotFoundError:
        # Nobody has installed what stands in this folder.
        return f"pip install '.[{extra}]' in the clone"
    return f"pip install '{NAME}[{extra}]'"
