"""One matrix that embeds and that predicts (section 3.4).

Axes: B batch, T length, D model width, V vocabulary.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedEmbedding(keras.layers.Layer):
    """Source embedding, target embedding and the layer before the softmax.

    Called on ids it looks up their rows and multiplies them by √D; `logits`
    multiplies by the same matrix, transposed.

    Args:
        vocab_size: Rows of the matrix, at least 1.
        d_model: Width, at least 1.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        ids: Integer tensor `(B, T)`.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype.

    Raises:
        ValueError: If an argument is below 1.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4.
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs) -> None:
        super().__init__(**kwargs)
        for name, value in (("vocab_size", vocab_size), ("d_model", d_model)):
            if value < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: {name}={value}"
                )
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape=None):
        # Unit variance after the scaling, and logits of unit variance too.
        self.table = self.add_weight(
            name="table",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(
                stddev=self.d_model**-0.5
            ),
        )

    def call(self, ids):
        rows = ops.take(self.table, ids, axis=0)
        return ops.cast(rows, self.compute_dtype) * self.d_model**0.5

    def output_kernel(self):
        """The matrix transposed, `(D, V)`, in the compute dtype."""
        return ops.transpose(ops.cast(self.table, self.compute_dtype))

    def logits(self, inputs, kernel=None):
        """Score every piece of the vocabulary.

        Args:
            inputs: Float tensor `(..., D)`.
            kernel: As from `output_kernel`, where many products share one.

        Returns:
            Float32 tensor `(..., V)`; the product runs in the compute dtype.
        """
        kernel = self.output_kernel() if kernel is None else kernel
        flat = ops.reshape(inputs, (-1, self.d_model))
        logits = ops.matmul(flat, kernel)
        shape = (*ops.shape(inputs)[:-1], self.vocab_size)
        return ops.reshape(ops.cast(logits, "float32"), shape)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
        }
