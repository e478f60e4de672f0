"""Serves the newest version in a folder, and changes to a newer one.

Like TensorFlow Serving by default, it serves the highest number. A newer
version is loaded beside the older one and takes over; the older one finishes
its requests before its memory is freed.
"""

import asyncio
import gc
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  The graph needs its operators.

from keras_transformer.config import UserError, logger
from keras_transformer.decoding.frozen_weights import missing_operators
from keras_transformer.machine import devices
from keras_transformer.serving.limits import RefusalError
from keras_transformer.translation.model_card import ModelCard, find_versions

DEFAULT_SIGNATURE = "serving_default"
POLL_SECONDS = 2.0
COPY_SECONDS = 2.0  # A file that has not changed for so long is whole.
RETRY_SECONDS = 30.0  # After a failure: memory may have been short.
_WARM_UP_TEXT = b"Where is the nearest station?"  # In any language.

Row = tuple[bytes, ...]  # The inputs of a text, in the order of their names.
Outputs = dict[str, np.ndarray]  # Each (B, ...), by name.


class ServedModel:
    """A version of a model that many threads may call.

    TensorFlow Serving's loader loads it; no Python of ours takes part in an
    answer. `threads` are those of one operator, 0 for one a core; all models of
    a process use the number of the first.
    """

    def __init__(self, path: pathlib.Path, threads: int = 0) -> None:
        self.version = int(path.name)
        self.card = ModelCard.load(path)  # None if it has none.
        if self.card:  # Operators may end the process, and sums overflow.
            lacking = missing_operators(self.card.operators)
            lacking += [x for x in self.card.instructions if not devices.has(x)]
            if lacking:
                raise UserError(
                    f"Expected a machine with {' and '.join(lacking)} for "
                    f"{path}, received one without; export the model again "
                    "with --portable, or on a machine like this one."
                )
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            load = tf.compat.v1.saved_model.loader.load
            loaded = load(self._session, [tf.saved_model.SERVING], str(path))
        # `SignatureDef` by name, without SavedModel's initialiser.
        self.signatures, self._calls = {}, {}
        # Those with outputs such as (B, T, S), padded to the longest row.
        self.padded = set()
        for name, signature in loaded.signature_def.items():
            if name.startswith("__"):
                continue
            self.signatures[name] = signature
            outputs = signature.outputs.items()
            self._calls[name] = self._session.make_callable(
                {output: info.name for output, info in outputs},
                [signature.inputs[each].name for each in self.inputs(name)],
            )
            for _, info in outputs:
                shape = info.tensor_shape
                if shape.unknown_rank or -1 in [x.size for x in shape.dim[1:]]:
                    self.padded.add(name)

    def inputs(self, signature: str) -> list[str]:
        """Return the names of the inputs, sorted, the order `run` expects."""
        return sorted(self.signatures[signature].inputs)

    def run(self, signature: str, rows: Sequence[Row]) -> Outputs:
        """Call a signature for B texts, each with the inputs of `inputs`."""
        columns = [np.array(x, object) for x in zip(*rows, strict=True)]
        return self._calls[signature](*columns)


def card_of(model: ServedModel) -> ModelCard:
    """Return the card of a model; `RefusalError` if the export has none."""
    if model.card is None:
        raise RefusalError(
            "This export does not say its languages; export its model again. "
            "TensorFlow Serving's interface under /v1 answers all the same.",
            501,
        )
    return model.card


def _is_being_copied(path: pathlib.Path) -> bool:
    """Return whether anything in a folder is only a moment old."""
    now = time.time()
    times = [each.stat().st_mtime for each in (path, *path.rglob("*"))]
    return any(0 <= now - time < COPY_SECONDS for time in times)


class Versions:
    """The versions in a folder, and the one that is served, `current`."""

    def __init__(self, folder: pathlib.Path, threads: int = 0) -> None:
        self.folder, self.threads = folder, threads
        versions = find_versions(folder)
        self.current = self._load(versions[max(versions)])

    async def follow(self) -> None:
        """Look for a newer version every few seconds, forever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await asyncio.to_thread(self.change_over)
            except Exception as error:  # A folder may hold anything.
                is_told = isinstance(error, UserError)
                logger.warning("%s", error if is_told else repr(error))
                await asyncio.sleep(RETRY_SECONDS)

    def change_over(self) -> None:
        """Serve the highest version; if it cannot be loaded, raise why."""
        versions = find_versions(self.folder)
        version = max(versions, default=self.current.version)
        if version == self.current.version:
            return
        if _is_being_copied(versions[version]):
            return
        model = self._load(versions[version])
        old = self.current.version
        logger.info("Version %d takes over from %d", version, old)
        # Once the last request lets go of the older one, its memory is free.
        self.current = model
        gc.collect()  # Refused requests hold it.

    def _load(self, path: pathlib.Path) -> ServedModel:
        try:
            model = ServedModel(path, self.threads)
            if DEFAULT_SIGNATURE not in model.signatures:
                raise ValueError(f"it has no signature {DEFAULT_SIGNATURE}")
            for name in model.signatures:  # The first call of each is slow.
                model.run(name, [(_WARM_UP_TEXT,) * len(model.inputs(name))])
        except UserError:
            raise
        except Exception as error:  # A folder may hold anything.
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise UserError(
                f"Expected a SavedModel that answers in {path}, cannot load "
                f"it ({reason}); export the model again."
            ) from None
        return model
