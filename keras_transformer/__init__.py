"""The system of "Attention Is All You Need" on Keras 3 and TensorFlow.

The names below load on first use, so that the model wing (layers, model,
losses, schedules) never imports TensorFlow by itself and runs on any Keras
backend.
"""

import importlib
import sys
import types

_HOMES = {
    "PRESETS": "config",
    "Transformer": "model",
    "TransformerSchedule": "schedules",
    "SmoothedCrossEntropy": "losses",
    "TokenAccuracy": "metrics",
    "Perplexity": "metrics",
    "positional_encoding": "layers",
    "Tokenizer": "data.tokenizer",
    "Translator": "translator",
    "Hypothesis": "translator",
    "SearchOptions": "options",
    "Sampling": "options",
    "Attention": "alignment",
}
_MODULES = ("layers", "masks")

__all__ = [*_HOMES, *_MODULES, "beam_search"]


def __getattr__(name):
    if name in _HOMES:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
        value = getattr(module, name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return __all__


class _Package(types.ModuleType):
    """Lets `beam_search` be the function though its module has that name."""

    @property
    def beam_search(self):
        return importlib.import_module(f"{__name__}.beam_search").beam_search

    @beam_search.setter
    def beam_search(self, module):
        """Importing the module sets this attribute; the function stays."""


sys.modules[__name__].__class__ = _Package
