"""Imports packages that an extra such as `[demo]` installs.

Training, translating, evaluating and exporting need none of them.
"""

import importlib
import shlex
from importlib import metadata
from typing import Any

from keras_transformer.config import UserError
from keras_transformer.machine.distribution import NAME


def needs(module: str, extra: str) -> Any:
    """Import a module by its dotted name, which an extra of ours installs.

    Raises:
        UserError: If it cannot be imported; it names the command to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"Expected the package {module.partition('.')[0]}, cannot import "
            f"it ({error}); install it with {install_command(extra)}."
        ) from None


def install_command(extra: str) -> str:
    """Name the command that installs an extra, for an error."""
    try:
        ours = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        # The package in this folder is not installed.
        return f"pip install '.[{extra}]' in the clone"
    # Came from a folder, a file or an address (PEP 610): an index may lack it.
    if ours.read_text("direct_url.json"):
        split = [line.partition(";") for line in ours.requires or ()]
        needed = [
            shlex.quote(name.strip())
            for name, _, marker in split
            if marker.strip().replace("'", '"') == f'extra == "{extra}"'
        ]
        if needed:
            return f"pip install {' '.join(needed)}"
    return f"pip install '{NAME}[{extra}]'"
