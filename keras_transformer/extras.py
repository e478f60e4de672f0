"""Packages that an extra of this one installs, such as `[demo]`.

Training, translating, evaluating and exporting need none of them.
"""

import importlib
from typing import Any

from keras_transformer.config import UserError


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
            f"it ({error}); install it with pip install "
            f"'keras-transformer[{extra}]'."
        ) from None
