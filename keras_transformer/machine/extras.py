"""This package in pip, and what its extras install.

Training, translating, evaluating and exporting need no extra.
"""

import importlib
import io
from importlib import metadata
from typing import Any

from keras_transformer.config import UserError

NAME = "keras-transformer-mt"


def needs(module: str, extra: str) -> Any:
    """Import a module by its dotted name, or name the command to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"Expected the package {module.partition('.')[0]}, cannot import "
            f"it ({error}); install it with {install_command(extra)}."
        ) from None


def figure(width: float, height: float) -> Any:
    """Make a figure of Matplotlib that a notebook shows, whatever its backend.

    It avoids pyplot, which would change a notebook's settings.
    """
    figures = needs("matplotlib.figure", "plot")
    made = figures.Figure(figsize=(width, height), layout="constrained")

    def as_png() -> bytes:
        picture = io.BytesIO()
        made.savefig(picture, format="png")
        return picture.getvalue()

    made._repr_png_ = as_png
    return made


def check_keras() -> None:
    """Refuse global settings that a run cannot have; it sets its own policy."""
    import keras

    backend, floatx = keras.backend.backend(), keras.config.floatx()
    if (backend, floatx) != ("tensorflow", "float32"):
        raise UserError(
            "Expected Keras's backend tensorflow and floatx float32, found "
            f"{backend} and {floatx}; mend keras.json, set KERAS_BACKEND="
            "tensorflow, or call keras.config.set_floatx('float32')."
        )


def missing_keras(error: ImportError) -> UserError | None:
    """Explain an import that fails for how Keras was set up, or return None."""
    is_keras = "Keras cannot be imported" in str(error)  # TensorFlow's words.
    if is_keras or error.name in ("jax", "torch", "openvino"):
        return UserError(
            "Keras was told, by KERAS_BACKEND, keras.json or "
            "TF_USE_LEGACY_KERAS, to compute with a package that is not "
            "installed; set KERAS_BACKEND=tensorflow and unset the last."
        )
    return None


def install_command(extra: str) -> str:
    """Name the command that installs what an extra needs, for an error."""
    try:
        metadata.version(NAME)
    except metadata.PackageNotFoundError:  # This folder is not installed.
        return f"pip install -e '.[{extra}]' in the clone"
    return f"pip install '{NAME}[{extra}]'"
