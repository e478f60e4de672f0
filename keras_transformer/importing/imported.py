"""The result of reading a foreign format, and the folding of its weights.

Axes: D model width, H heads, K key width, U value width, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from keras_transformer.config import ModelConfig
from keras_transformer.data.tokenizer import Tokenizer

# The bias of logits that no search may choose. exp(-100) is 0 in float32. Much
# larger numbers would spoil the loss of a fine-tuning with label smoothing, and
# do not fit float16.
NEVER = -100.0


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model from elsewhere, by our names.

    Attributes:
        model: The model's arguments.
        weights: Float32 arrays by the names of `Transformer`'s weights, such
            as `encoder/layer_0/attention/query`; all of them.
        tokenizer: The vocabulary, with our ids.
        source_lang: Language code of the source side; None if the files do
            not tell.
        target_lang: Language code of the target side; None if the files do
            not tell.
    """

    model: ModelConfig
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer
    source_lang: str | None = None
    target_lang: str | None = None


def attention(
    query: tuple[np.ndarray, np.ndarray],
    key: tuple[np.ndarray, np.ndarray],
    value: tuple[np.ndarray, np.ndarray],
    output: tuple[np.ndarray, np.ndarray],
) -> dict[str, np.ndarray]:
    """Make the weights of a `MultiHeadAttention` with `use_bias`.

    A bias of keys adds the same to every score of a query. The softmax cancels
    it, so it is dropped. The weights of a query sum to 1, so a bias of values
    reaches the output unchanged and becomes part of the output's bias.

    Args:
        query: Kernel `(D, H * K)` and bias `(H * K,)`.
        key: Kernel `(D, H * K)` and bias `(H * K,)`.
        value: Kernel `(D, H * U)` and bias `(H * U,)`.
        output: Kernel `(H * U, D)` and bias `(D,)`.

    Returns:
        Float32 arrays by the names of the layer's weights.
    """
    return {
        "query": query[0],
        "key": key[0],
        "value": value[0],
        "output": output[0],
        "query_bias": query[1],
        "output_bias": output[1] + value[1] @ output[0],
    }


def interleaved(d_model: int) -> np.ndarray:
    """Find each column's place if sines and cosines are in two halves.

    Other systems put the sines of all rates before the cosines; ours alternate.
    The rest of a model does not depend on the order of its `d_model` columns,
    as long as it is the same everywhere.

    Returns:
        Integers `(D,)`: our columns are `theirs[..., interleaved(d_model)]`.
    """
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)
