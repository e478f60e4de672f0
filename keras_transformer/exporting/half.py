"""Stores weights in float16 and computes with them in float32.

They take half the space. Computing in float16 as well would lose digits and,
on a CPU, time.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.decoding.ensemble import Ensemble


class HalfWeights:
    """Copies of a model's weights, rounded to float16.

    Args:
        model: A built model or ensemble; it keeps its own weights.
    """

    def __init__(self, model: keras.Model | Ensemble) -> None:
        self._pairs = [
            (
                weight,
                keras.Variable(
                    ops.cast(weight, "float16"),
                    dtype="float16",
                    trainable=False,
                    name=weight.name,
                ),
            )
            for weight in model.weights
        ]

    def used_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function read these weights in place of the model's.

        Args:
            function: Takes tensors and calls any methods of the model.

        Returns:
            The same function of the same tensors. Each call casts every
            weight once, however many steps it makes.
        """

        def with_these(*tensors: Any) -> Any:
            # The scope casts to the dtype of what it stands in for.
            with keras.StatelessScope(self._pairs):
                return function(*tensors)

        return with_these
