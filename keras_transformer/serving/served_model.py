"""Loads a SavedModel as TensorFlow Serving does, and calls its signatures."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  The graph needs its operators.

from keras_transformer.config import UserError
from keras_transformer.decoding.frozen_weights import missing_operators
from keras_transformer.machine import devices
from keras_transformer.translation.model_card import ModelCard

DEFAULT_SIGNATURE = "serving_default"

Row = tuple[bytes, ...]  # The inputs of a text, in the order of their names.
Outputs = dict[str, np.ndarray]  # Each (B, ...), by name.


class ServedModel:
    """A version of a model that many threads may call.

    None of our Python takes part in an answer: the loader is TensorFlow
    Serving's.

    Args:
        path: Folder of the SavedModel, named by its version.
        threads: Threads for one operator, 0 for one thread a core. All models
            of a process use those of the first.

    Attributes:
        version: Its number.
        card: The export's model card; None if it has none.
        signatures: `SignatureDef` by name, without SavedModel's initialiser.

    Raises:
        UserError: If it cannot be loaded, or takes anything but texts.
    """

    def __init__(self, path: pathlib.Path, threads: int = 0) -> None:
        self.version = int(path.name)
        self.card = ModelCard.load(path)
        if self.card:
            _check_machine(path, self.card)
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                loaded = tf.compat.v1.saved_model.loader.load(
                    self._session, [tf.saved_model.SERVING], str(path)
                )
        except Exception as error:  # TensorFlow may raise anything.
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
            name: self._session.make_callable(
                {output: info.name for output, info in of.outputs.items()},
                [of.inputs[each].name for each in self.inputs(name)],
            )
            for name, of in self.signatures.items()
        }
        # Outputs such as (B, T, S) are padded to the longest row of a batch.
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
        """Return the names of the inputs, sorted, the order `run` expects."""
        return sorted(self.signatures[signature].inputs)

    def run(self, signature: str, rows: Sequence[Row]) -> Outputs:
        """Call a signature for B texts, each with the inputs of `inputs`."""
        columns = [
            np.array(column, object) for column in zip(*rows, strict=True)
        ]
        return self._calls[signature](*columns)

    def close(self) -> None:
        """Free its memory once nobody calls it any more."""
        self._session.close()


def _check_machine(path: pathlib.Path, card: ModelCard) -> None:
    """Raise `UserError` if the model cannot be trusted to run here."""
    if missing := missing_operators(card.operators):
        raise UserError(
            f"Expected a TensorFlow with {' and '.join(missing)} for {path}, "
            "received one without; export the model again with --portable."
        )
    lacking = [name for name in card.instructions if not devices.has(name)]
    if lacking:
        # Operators in bfloat16 end the process; sums of int8 overflow.
        raise UserError(
            f"Expected a processor with {' and '.join(lacking)} for {path}, "
            f"whose products in {card.quantization} need it, received one "
            "without; export the model again on a processor like this one."
        )


def joined(rows: Sequence[Outputs]) -> Outputs:
    """Join the outputs `(1, ...)` of texts that were in separate batches.

    They are padded to the longest with 0 or "", as a signature itself pads.
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
