"""The name of this package in pip, and a check for others in its folder."""

import pathlib
from importlib import metadata

from keras_transformer.config import UserError

NAME = "keras-transformer-mt"
PACKAGE = "keras_transformer"
# Another project, which brings a package of the same name.
OTHERS = "keras-transformer"


def check_alone() -> None:
    """Refuse to work if another project writes to this package's folder.

    Raises:
        UserError: If that project is installed.
    """
    try:
        others = metadata.distribution(OTHERS)
    except metadata.PackageNotFoundError:
        return
    own = pathlib.PurePosixPath(PACKAGE, "__init__.py")
    if own in (others.files or ()):
        raise UserError(
            f"Expected {NAME} to have the package {PACKAGE} to itself, found "
            f"another project's {OTHERS} {others.version}, which overwrites "
            f"it; run pip uninstall --yes {OTHERS}, then install {NAME} again "
            "with --force-reinstall --no-deps."
        )
