"""A SavedModel in the loader of TensorFlow Serving: its own signatures."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  Its operators, which the graph needs.

from keras_transformer.config import UserError
from keras_transformer.translation.model_card import ModelCard

DEFAULT_SIGNATURE = "serving_default"


class ServedModel:
    """A version of a model; may be called from many threads.

    No Python of ours takes part in an answer: it is TensorFlow Serving's.

    Args:
        path: Folder of the SavedModel, named by its version.
        threads: Threads on which an operator runs, 0 for a thread a core. All
            models of a process have those of the first.

    Attributes:
        version: Its number.
        card: What the export says of itself; None where it does not.
        signatures: `SignatureDef` by name, without SavedModel's initialiser.

    Raises:
        UserError: If it cannot be loaded, or takes other things than texts.
    """

    def __init__(self, path: pathlib.Path, threads: int = 0) -> None:
        self.version = int(path.name)
        self.card = ModelCard.load(path)
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                loaded = tf.compat.v1.saved_model.loader.load(
                    self._session, [tf.saved_model.SERVING], str(path)
                )
        except Exception as error:  # Whatever TensorFlow finds wrong in it.
            self._session.close()
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"Expected a SavedModel in {path}, cannot load it ({reason}); "
                "export the model again."
            ) from None
        self.signatures = {
            name: signature
            for name, signature in loaded.signature_def.items()
            if not name.startswith("__")
        }
        for name, signature in self.signatures.items():
            for info in signature.inputs.values():
                if info.dtype != tf.string.as_datatype_enum:
                    self._session.close()
                    raise UserError(
                        f"Expected a model that takes texts, but {path} takes "
                        f"numbers in its signature {name}; serve it with "
                        "TensorFlow Serving."
                    )
        self._calls = {
            name: self._call(signature)
            for name, signature in self.signatures.items()
        }
        # (B, T, S) and the like are padded to the longest row of a batch.
        self.padded = {
            name
            for name, signature in self.signatures.items()
            if any(
                -1 in [dim.size for dim in info.tensor_shape.dim[1:]]
                or info.tensor_shape.unknown_rank
                for info in signature.outputs.values()
            )
        }

    def inputs(self, signature: str) -> list[str]:
        """Names of the inputs, sorted, in which order `run` takes them."""
        return sorted(self.signatures[signature].inputs)

    def run(
        self, signature: str, rows: Sequence[tuple[bytes, ...]]
    ) -> dict[str, np.ndarray]:
        """Call a signature.

        Args:
            signature: Its name.
            rows: For each of B texts the inputs, in the order of `inputs`.

        Returns:
            Its outputs by name, each `(B, ...)`.
        """
        columns = [
            np.array(column, object) for column in zip(*rows, strict=True)
        ]
        return self._calls[signature](*columns)

    def close(self) -> None:
        """Free its memory; nobody calls it any more."""
        self._session.close()

    def _call(self, signature: Any) -> Callable[..., dict[str, np.ndarray]]:
        return self._session.make_callable(
            {name: info.name for name, info in signature.outputs.items()},
            [signature.inputs[name].name for name in sorted(signature.inputs)],
        )


def joined(rows: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Put rows together that were computed in batches of their own.

    Args:
        rows: For each of B texts the outputs by name, `(1, ...)`; at least one.

    Returns:
        Each output `(B, ...)`, padded to its longest row with 0 or "", as the
        signature itself pads.
    """
    return {name: _joined([row[name] for row in rows]) for name in rows[0]}


def _joined(values: Sequence[np.ndarray]) -> np.ndarray:
    shapes = {value.shape for value in values}
    if len(shapes) == 1:
        return np.concatenate(values)
    longest = np.max(list(shapes), axis=0)[1:]
    filling = b"" if values[0].dtype == object else 0
    result = np.full((len(values), *longest), filling, values[0].dtype)
    for row, value in zip(result, values, strict=True):
        row[tuple(slice(size) for size in value.shape[1:])] = value[0]
    return result
