"""The system of "Attention Is All You Need" on Keras 3 and TensorFlow.

The names below load on first use, so that the model wing (layers, model,
losses, schedules) never imports TensorFlow by itself and runs on any Keras
backend.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "PRESETS": "config",
    "Transformer": "model",
    "TransformerSchedule": "schedules",
    "SmoothedCrossEntropy": "losses",
    "TokenAccuracy": "metrics",
    "Perplexity": "metrics",
    "positional_encoding": "layers",
    "open_corpus": "data.corpora",
    "Tokenizer": "data.tokenizer",
    "batches": "data.batching",
    "beam_search": "decoding.beam_search",
    "SearchOptions": "decoding.options",
    "Sampling": "decoding.options",
    "Translator": "translation.translator",
    "Hypothesis": "translation.translator",
    "Attention": "translation.alignment",
    "Adam": "training.optimizers",
    "export": "exporting.saved_model",
    "train": "run",
    "Run": "run",
}
_MODULES = ("layers", "masks")

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
        value = getattr(module, name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
