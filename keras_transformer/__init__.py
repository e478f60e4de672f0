"""The system of "Attention Is All You Need" on Keras 3 and TensorFlow.

The names below load on first use, so that the model wing (layers, model,
losses, schedules) never imports TensorFlow by itself and runs on any Keras
backend.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # The same names once more, for type checkers.
    from keras_transformer import layers as layers
    from keras_transformer import masks as masks
    from keras_transformer.config import JobError as JobError
    from keras_transformer.config import Sampling as Sampling
    from keras_transformer.config import Search as Search
    from keras_transformer.config import UserError as UserError
    from keras_transformer.data.adapter import (
        TokenizerAdapter as TokenizerAdapter,
    )
    from keras_transformer.data.batching import batch as batch
    from keras_transformer.data.batching import batches as batches
    from keras_transformer.data.corpora import open_corpus as open_corpus
    from keras_transformer.data.tokenizer import Tokenizer as Tokenizer
    from keras_transformer.decoding.beam_search import (
        beam_search as beam_search,
    )
    from keras_transformer.exporting.saved_model import export as export
    from keras_transformer.importing.run_directory import (
        import_run as import_run,
    )
    from keras_transformer.layers.positional_encoding import (
        positional_encoding as positional_encoding,
    )
    from keras_transformer.losses import (
        SmoothedCrossEntropy as SmoothedCrossEntropy,
    )
    from keras_transformer.metrics import Perplexity as Perplexity
    from keras_transformer.metrics import TokenAccuracy as TokenAccuracy
    from keras_transformer.model import Transformer as Transformer
    from keras_transformer.presets import PRESETS as PRESETS
    from keras_transformer.run import Run as Run
    from keras_transformer.run import dry_run as dry_run
    from keras_transformer.run import train as train
    from keras_transformer.schedules import (
        TransformerSchedule as TransformerSchedule,
    )
    from keras_transformer.synthetic import backtranslate as backtranslate
    from keras_transformer.synthetic import distill as distill
    from keras_transformer.training.optimizers import Adam as Adam
    from keras_transformer.training.request import recipe as recipe
    from keras_transformer.translation.alignment import Attention as Attention
    from keras_transformer.translation.translator import (
        Hypothesis as Hypothesis,
    )
    from keras_transformer.translation.translator import (
        Translator as Translator,
    )

_HOMES = {
    "PRESETS": "presets",
    "UserError": "config",
    "JobError": "config",
    "Transformer": "model",
    "TransformerSchedule": "schedules",
    "SmoothedCrossEntropy": "losses",
    "TokenAccuracy": "metrics",
    "Perplexity": "metrics",
    "positional_encoding": "layers.positional_encoding",
    "open_corpus": "data.corpora",
    "Tokenizer": "data.tokenizer",
    "TokenizerAdapter": "data.adapter",
    "batch": "data.batching",
    "batches": "data.batching",
    "beam_search": "decoding.beam_search",
    "Search": "config",
    "Sampling": "config",
    "Translator": "translation.translator",
    "Hypothesis": "translation.translator",
    "Attention": "translation.alignment",
    "Adam": "training.optimizers",
    "export": "exporting.saved_model",
    "import_run": "importing.run_directory",
    "train": "run",
    "distill": "synthetic",
    "backtranslate": "synthetic",
    "dry_run": "run",
    "Run": "run",
    "recipe": "training.request",
}
_MODULES = ("layers", "masks")

__all__ = [*_HOMES, *_MODULES]


if not TYPE_CHECKING:  # Otherwise every misspelt name would pass.

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
            value = getattr(module, name)
        elif name in _MODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


# Modules of the classes that Keras saves by name.
_SAVED_BY_KERAS = (
    *("layers", "model", "losses", "metrics", "schedules"),
    "training.optimizers",
)


class _Registrar(importlib.abc.MetaPathFinder):
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

        spec.loader.exec_module = execute_and_register  # type: ignore
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
