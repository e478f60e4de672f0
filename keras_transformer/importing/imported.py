"""The result of reading a foreign format, and the weights of its layers.

The layers of other systems differ from ours in these points:

- Keys and values have biases. A key bias adds the same number to every score of
  a query and cancels in the softmax, so it is dropped. The weights of a query
  sum to 1, so a value bias reaches the output unchanged: it is added to the
  output bias.
- Sines come before cosines. Where ours alternate, as in the paper, all columns
  of width D are put in our order.

Axes: D model width, H heads, K key width, U value width, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.config import ModelConfig
from keras_transformer.data.tokenizer import Tokenizer

# The bias of logits that no search may choose. exp(-100) is 0 in float32. Much
# larger numbers would spoil the loss of a fine-tuning with label smoothing, and
# do not fit float16.
NEVER = -100.0
_SUBLAYERS = {
    "encoder": ("attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model from elsewhere, by our names.

    Attributes:
        model: The model's arguments.
        weights: Float arrays by the names of `Transformer`'s weights, such as
            `encoder/layer_0/attention/query`; all of them.
        tokenizer: The vocabulary, with our ids.
        source_lang: Language code of the source side; None if the files do
            not tell.
        target_lang: Language code of the target side, or None likewise.
    """

    model: ModelConfig
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer
    source_lang: str | None = None
    target_lang: str | None = None


class Linear(NamedTuple):
    """A projection: its kernel `(in, out)` and its bias `(out,)`."""

    kernel: np.ndarray
    bias: np.ndarray


class Norm(NamedTuple):
    """Gain and bias of a layer normalisation, each `(D,)`."""

    gain: np.ndarray
    bias: np.ndarray


class Sublayer(NamedTuple):
    """Projections of a sub-layer and its norm.

    Attributes:
        linears: Query `(D, H * K)`, key, value `(D, H * U)` and output, or both
            of feed-forward.
        norm: The norm.
    """

    linears: Sequence[Linear]
    norm: Norm


def layer_weights(
    num_layers: Callable[[str], int],
    positions: str,
    read: Callable[[str, int, str], Sublayer],
) -> dict[str, np.ndarray]:
    """Make the weights of all layers of both stacks, by our names.

    Args:
        num_layers: Returns the depth of `"encoder"` and `"decoder"`.
        positions: As in `ModelConfig`.
        read: Reads a sub-layer by its stack, the number of its layer and our
            name for it, such as `("decoder", 0, "cross_attention")`.
    """
    found = {}
    for stack, names in _SUBLAYERS.items():
        for i in range(num_layers(stack)):
            for name in names:
                weights = _of_sublayer(read(stack, i, name), positions)
                for part, array in weights.items():
                    found[f"{stack}/layer_{i}/{name}{part}"] = array
    return found


def _of_sublayer(sublayer: Sublayer, positions: str) -> dict[str, np.ndarray]:
    """Return the arrays by what follows the name of the sub-layer."""
    linears, (gain, bias) = sublayer
    order = column_order(positions, len(gain))
    norm = {"_norm/gamma": gain[order], "_norm/beta": bias[order]}
    if len(linears) == 2:
        widen, narrow = linears
        return norm | {
            "/widen/kernel": widen.kernel[order],
            "/widen/bias": widen.bias,
            "/narrow/kernel": narrow.kernel[:, order],
            "/narrow/bias": narrow.bias[order],
        }
    query, key, value, output = linears
    kernel = output.kernel[:, order]
    return norm | {
        "/query": query.kernel[order],
        "/key": key.kernel[order],
        "/value": value.kernel[order],
        "/output": kernel,
        "/query_bias": query.bias,
        "/output_bias": output.bias[order] + value.bias @ kernel,
    }


def column_order(positions: str, d_model: int) -> np.ndarray | slice:
    """Return the order that makes our columns of theirs: `theirs[..., order]`.

    The rest of a model does not depend on the order of its `d_model` columns,
    as long as it is the same everywhere.
    """
    if positions != "sinusoidal":
        return slice(None)
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)
