"""The system of "Attention Is All You Need" on Keras 3 and TensorFlow.

The names of `__init__.pyi` load on first use, so that the model wing (layers,
model, losses, schedules) never imports TensorFlow by itself and runs on any
Keras backend.
"""

import ast
import importlib
import importlib.machinery
import pkgutil
import sys
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
    if home == __name__:  # A module of the package.
        value = importlib.import_module(f"{home}.{name}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


# Modules of the classes that Keras saves by name.
_SAVED_BY_KERAS = "layers model losses schedules training.optimizers".split()


class _Registrar:
    """Lets `keras.models.load_model` find the classes of this package.

    It imports them as soon as Keras is loaded and no module of ours is halfway
    through its own imports.
    """

    def __init__(self) -> None:
        self.running: set[str] = set()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "keras" and not fullname.startswith(f"{__name__}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: Any) -> None:
            self.running.add(fullname)
            try:
                execute(module)
            finally:
                self.running.discard(fullname)
            self.register()

        spec.loader.exec_module = execute_and_register
        return spec

    def register(self) -> None:
        is_done = self not in sys.meta_path
        if is_done or self.running or "keras" not in sys.modules:
            return
        sys.meta_path.remove(self)
        for name in _SAVED_BY_KERAS:
            importlib.import_module(f"{__name__}.{name}")


_registrar = _Registrar()
sys.meta_path.insert(0, _registrar)
_registrar.register()
