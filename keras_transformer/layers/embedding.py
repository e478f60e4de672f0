"""One matrix that both embeds and predicts (section 3.4).

Axes: B batch, T length, D model width, V vocabulary, K pieces of it.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformer.config import PAD_ID, checked
from keras_transformer.keras_internals import Shape, Tensor, ids_to_come
from keras_transformer.layers.layer import Layer
from keras_transformer.layers.products import products_in_use


@keras.saving.register_keras_serializable(package="keras_transformer")
class TiedEmbedding(Layer):
    """Source embedding, target embedding and the layer before the softmax.

    Called on ids, it looks up their rows and multiplies them by √D. Called with
    `reverse=True`, as in `keras.layers.ReversibleEmbedding`, it multiplies by
    the same matrix transposed.

    Args:
        vocab_size: Rows of the matrix, at least 1.
        d_model: Width, at least 1.
        mask_zero: Whether to attach a mask to the output that hides padding
            (ids up to 0) from later layers, as `keras.layers.Embedding` does. A
            `Transformer` passes masks by name and needs none.
        use_bias: Whether the logits have a bias, unlike the paper's.
        **kwargs: Passed to `keras.layers.Layer`, such as `name` and `dtype`.

    Call arguments:
        inputs: Integer tensor `(B, T)`; with `reverse`, float `(B, T, D)`.
        reverse: Whether to score the vocabulary.

    Returns:
        Float tensor `(B, T, D)` in the layer's compute dtype; with `reverse`,
        logits, float32 `(B, T, V)`.

    Reference:
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.4.
    """

    arguments = ("vocab_size", "d_model", "mask_zero", "use_bias")

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

    def build(self, input_shape: Shape | None = None) -> None:
        # Gives unit variance to the scaled embeddings and to the logits.
        normal = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        shape = self.vocab_size, self.d_model
        self.table = self.add_weight(shape, normal, name="table")
        if self.use_bias:
            self.bias = self.add_weight(shape[:1], "zeros", name="bias")

    def __call__(self, inputs: Tensor, reverse: bool = False, **kw: Any) -> Any:
        inputs = inputs if reverse else ids_to_come(inputs)
        return super().__call__(inputs, reverse=reverse, **kw)

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            return self.logits(inputs)
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if "int" not in dtype:
            example = '`keras.Input((None,), dtype="int32")`'
            raise ValueError(f"Ids must be integers, as {example}, not {dtype}")
        if dtype not in ("int32", "int64"):  # What every backend looks up by.
            inputs = ops.cast(inputs, "int32")
        # An id below 0 is padding too; as an index it would count from the end.
        rows = products_in_use().lookup(self.table, ops.maximum(inputs, PAD_ID))
        return ops.cast(rows, self.compute_dtype) * self.d_model**0.5

    def logits(self, inputs: Tensor) -> Tensor:
        """Score every piece of the vocabulary.

        Args:
            inputs: Float tensor `(..., D)`.

        Returns:
            Float32 tensor `(..., V)`; the product runs in the compute dtype.
        """
        if isinstance(inputs, keras.KerasTensor):
            # Otherwise a functional model would hold the matrix as a constant.
            return self(inputs, reverse=True)
        return self.scorer()(inputs)

    def scorer(
        self, words: Tensor | None = None, offsets: Tensor | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Make a function that does what `logits` does, faster in many calls.

        Args:
            words: Integer tensor `(K,)`, the only pieces to score.
            offsets: Float32 tensor `(K,)` to add to their logits.

        Returns:
            A function of a float tensor `(..., D)`, which returns float32
            `(..., V)` or `(..., K)`.
        """
        multiply = products_in_use().table_product(
            self.table, self.compute_dtype, words
        )
        if self.use_bias:
            bias = ops.cast(self.bias, "float32")
            if words is not None:
                bias = ops.take(bias, words, axis=0)
            offsets = bias if offsets is None else offsets + bias
        size = self.vocab_size if words is None else ops.shape(words)[0]

        def score(inputs: Tensor) -> Tensor:
            flat = ops.reshape(inputs, (-1, self.d_model))
            logits = multiply(ops.cast(flat, self.compute_dtype))
            logits = ops.cast(logits, "float32")
            if offsets is not None:
                logits = ops.add(logits, offsets)
            return ops.reshape(logits, (*ops.shape(inputs)[:-1], size))

        return score

    def compute_mask(
        self, inputs: Tensor, previous_mask: Tensor | None = None
    ) -> Tensor | None:
        if "int" not in keras.backend.standardize_dtype(inputs.dtype):
            return previous_mask
        return ops.greater(inputs, PAD_ID) if self.mask_zero else None

    def compute_output_shape(
        self, input_shape: Shape, reverse: bool = False
    ) -> Shape:
        if reverse:
            return (*input_shape[:-1], self.vocab_size)
        return (*input_shape, self.d_model)
