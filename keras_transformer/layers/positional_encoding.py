"""Positions, as sinusoids (section 3.5) or learned (table 3, row E).

There are also tensor2tensor's sinusoids, for weights trained with them.

Axes: B batch, T length, D model width.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.config import SettingError, checked
from keras_transformer.keras_internals import Shape, Tensor
from keras_transformer.layers.layer import Layer, sequence_of


def positional_encoding(
    length: int | Tensor, d_model: int, start: int | Tensor = 0
) -> Tensor:
    """Compute interleaved sinusoids, always in float32.

    `PE(pos, 2i) = sin(pos / 10000**(2i / d_model))` and `PE(pos, 2i + 1)` is
    the cosine of the same angle.

    Args:
        length: Number of positions, an integer or a scalar tensor.
        d_model: Width, even.
        start: First position, an integer or a scalar tensor.

    Returns:
        Float32 tensor `(length, d_model)`.
    """
    _check_pairs(d_model)
    rates = 10_000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = _angles(length, start, rates)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (-1, d_model))


def tensor2tensor_encoding(
    length: int | Tensor, d_model: int, start: int | Tensor = 0
) -> Tensor:
    """Compute sinusoids as tensor2tensor does, always in float32.

    Sines fill the first half and cosines the second. The wavelengths run from
    2π to 10,000 · 2π inclusive, as the paper says in words. By the paper's
    formula, which is `positional_encoding`, they end earlier.

    Arguments, result and errors are the same as there.
    """
    _check_pairs(d_model)
    last = max(d_model // 2 - 1, 1)
    rates = 10_000.0 ** (-np.arange(d_model // 2) / last)
    angles = _angles(length, start, rates)
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def _angles(length, start, rates):
    """Multiply positions by float64 rates `(D / 2,)`: to `(length, D / 2)`."""
    # bfloat16 cannot hold positions above 256, so never the compute dtype.
    positions = ops.cast(ops.arange(length) + start, "float32")
    return positions[:, None] * rates.astype("float32")


# Kinds of positions that are computed rather than learned.
SINUSOIDS = {
    "sinusoidal": positional_encoding,
    "tensor2tensor": tensor2tensor_encoding,
}


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(Layer):
    """Adds to every token a vector that marks its position.

    Masking: Keras's mask passes through unchanged.

    Args:
        positions: `"sinusoidal"`, `"learned"` or `"tensor2tensor"`.
        max_positions: Rows of the learned table; later positions share its
            last row. Sinusoids have no limit.
        first_position: Number of the first position, at least 0.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Float tensor `(B, T, D)`, scaled embeddings.
        start: Number of positions before the first column, for a decoding
            step.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5.
    """

    arguments = ("positions", "max_positions", "first_position")

    def __init__(
        self,
        positions: str = "sinusoidal",
        max_positions: int = 1024,
        first_position: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.positions = checked("positions", positions)
        self.max_positions = checked("max_positions", max_positions)
        self.first_position = checked("first_position", first_position)

    def build(self, input_shape: Shape) -> None:
        self.d_model = int(input_shape[-1] or 0)
        self.input_spec = sequence_of(self.d_model)
        if self.positions == "learned":
            # Half the deviation of the scaled embeddings it is added to.
            normal = keras.initializers.RandomNormal(stddev=0.5)
            shape = self.max_positions, self.d_model
            self.table = self.add_weight(shape, normal, name="table")

    def call(self, inputs: Tensor, start: int | Tensor = 0) -> Tensor:
        length = ops.shape(inputs)[1]
        start = start + self.first_position
        if self.positions == "learned":
            rows = ops.arange(length) + start
            rows = ops.minimum(rows, self.max_positions - 1)
            encoding = ops.take(self.table, rows, axis=0)
        else:
            sinusoids = SINUSOIDS[self.positions]
            encoding = sinusoids(length, inputs.shape[-1], start)
        return inputs + ops.cast(encoding, self.compute_dtype)


def _check_pairs(d_model):
    if d_model < 2 or d_model % 2:
        expected = "even and at least 2: sines and cosines come in pairs"
        raise SettingError("d_model", expected, d_model)
