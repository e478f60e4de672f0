"""The system of "Attention Is All You Need" on Keras 3 and TensorFlow.

The names of `__init__.pyi` load on first use, so that the model wing (layers,
model, losses, optimizers) never imports TensorFlow by itself and runs on any
Keras backend. `keras.models.load_model` needs it imported: touch
`kt.Transformer`, or import `keras_transformer.model`.
"""

import ast
import importlib
import pkgutil
from typing import Any

__version__ = "0.1.0"

# For each public name its module, read from what type checkers read.
_HOMES = {
    alias.name: node.module
    for node in ast.parse(
        pkgutil.get_data(__name__, "__init__.pyi") or b""
    ).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    try:
        if home == __name__:  # A module of the package.
            value = importlib.import_module(f"{home}.{name}")
        else:
            value = getattr(importlib.import_module(home), name)
    except ImportError as error:
        from keras_transformer.machine import extras

        raise extras.missing_keras(error) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
