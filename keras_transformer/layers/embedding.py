"""One matrix that embeds and that predicts (section 3.4).

Axes: B batch, T length, D model width, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.config import PAD_ID, checked
from keras_transformer.keras_internals import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedEmbedding(keras.layers.Layer):
    """Source embedding, target embedding and the layer before the softmax.

    Called on ids it looks up their rows and multiplies them by √D. Called with
    `reverse=True`, as `keras.layers.ReversibleEmbedding`, it multiplies by the
    same matrix transposed.

    Args:
        vocab_size: Rows of the matrix, at least 1.
        d_model: Width, at least 1.
        mask_zero: Whether to attach a mask to the output that hides padding
            (id 0) from the layers behind, as `keras.layers.Embedding` does. A
            `Transformer` passes masks by name and needs none.
        use_bias: Whether the logits have a bias, which the paper's have not.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Integer tensor `(B, T)`; with `reverse`, float `(B, T, D)`.
        reverse: Whether to score the vocabulary.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype; with `reverse`,
        logits, float32 `(B, T, V)`.

    Raises:
        ValueError: If a size is below 1, or ids are no integers.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        mask_zero: bool = False,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = checked("vocab_size", vocab_size)
        self.d_model = checked("d_model", d_model)
        self.mask_zero = mask_zero
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, input_shape: Shape | None = None) -> None:
        # Unit variance after the scaling, and logits of unit variance too.
        self.table = self.add_weight(
            name="table",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(
                stddev=self.d_model**-0.5
            ),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocab_size,), initializer="zeros"
            )

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            return self.logits(inputs)
        _check_ids(inputs)
        rows = ops.take(self.table, inputs, axis=0)
        return ops.cast(rows, self.compute_dtype) * self.d_model**0.5

    def output_kernel(self) -> Tensor:
        """The matrix transposed, `(D, V)`, in the compute dtype."""
        return ops.transpose(ops.cast(self.table, self.compute_dtype))

    def logits(self, inputs: Tensor, kernel: Tensor | None = None) -> Tensor:
        """Score every piece of the vocabulary.

        Args:
            inputs: Float tensor `(..., D)`.
            kernel: As from `output_kernel`, where many products share one.

        Returns:
            Float32 tensor `(..., V)`; the product runs in the compute dtype.
        """
        if isinstance(inputs, keras.KerasTensor):
            # Or a functional model would hold the matrix as a constant.
            return self(inputs, reverse=True)
        kernel = self.output_kernel() if kernel is None else kernel
        flat = ops.reshape(inputs, (-1, self.d_model))
        logits = ops.matmul(flat, kernel)
        logits = ops.cast(logits, "float32")
        if self.use_bias:
            logits = logits + ops.cast(self.bias, "float32")
        shape = (*ops.shape(inputs)[:-1], self.vocab_size)
        return ops.reshape(logits, shape)

    def factors(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Two factors whose product is the logits, bias included.

        Args:
            inputs: Float tensor `(..., D)`.

        Returns:
            The inputs and the matrix `(V, D)`; with a bias both have one
            column more, the inputs one of ones, the matrix the bias.
        """
        if not self.use_bias:
            return inputs, self.table
        ones = ops.ones_like(inputs[..., :1])
        bias = ops.reshape(self.bias, (-1, 1))
        return (
            ops.concatenate([inputs, ones], axis=-1),
            ops.concatenate(
                [ops.reshape(self.table, (-1, self.d_model)), bias], axis=-1
            ),
        )

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None = None
    ) -> Tensor | None:
        if not _are_ids(inputs):
            return previous_mask
        return ops.not_equal(inputs, PAD_ID) if self.mask_zero else None

    def compute_output_shape(
        self, input_shape: Shape, reverse: bool = False
    ) -> Shape:
        if reverse:
            return (*input_shape[:-1], self.vocab_size)
        return (*input_shape, self.d_model)

    def compute_output_spec(
        self, inputs: Tensor, reverse: bool = False
    ) -> keras.KerasTensor:
        if not reverse:
            _check_ids(inputs)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape, reverse),
            dtype="float32" if reverse else self.compute_dtype,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "mask_zero": self.mask_zero,
            "use_bias": self.use_bias,
        }


def _are_ids(inputs):
    return "int" in keras.backend.standardize_dtype(inputs.dtype)


def _check_ids(inputs):
    if not _are_ids(inputs):
        raise ValueError(
            "Ids must be integers, such as those of "
            '`keras.Input((None,), dtype="int32")`. Received: '
            f"dtype={keras.backend.standardize_dtype(inputs.dtype)}"
        )
