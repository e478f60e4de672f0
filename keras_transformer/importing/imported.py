"""The weights of models from elsewhere, read by tables of names.

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

from keras_transformer.config import ModelConfig, UserError
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


class Names(NamedTuple):
    """How a format names the arrays of a layer.

    Attributes:
        layer: Path of a layer, with `{stack}` and the number `{i}` from 0 or
            `{n}` from 1.
        endings: What stands for the * of a part: of a kernel, of its bias, of
            a norm's gain, of its bias.
        parts: For our "attention", "cross_attention" and "feed_forward" the
            projections, either query, key, value and output or both of
            feed-forward, and then the norm.
        transposed: Whether kernels are `(out, in)`.
    """

    layer: str
    endings: tuple[str, str, str, str]
    parts: Mapping[str, Sequence[str]]
    transposed: bool = False


class Arrays:
    """The arrays of the file or folder `what`, each to be taken once."""

    def __init__(self, arrays: Mapping[str, np.ndarray], what: object) -> None:
        self.left = dict(arrays)
        self._what = what

    def take(self, name: str) -> np.ndarray:
        """Return an array that a Transformer has, or refuse the model."""
        if name not in self.left:
            raise UserError(
                f"{self._what} cannot be imported: it lacks {name}, which a "
                "Transformer of its settings has; download it again."
            )
        return self.left.pop(name)

    def check_all_taken(self) -> None:
        """Refuse a model with arrays that ours has no use for."""
        if self.left:
            raise UserError(
                f"{self._what} cannot be imported exactly: it has "
                f"{min(self.left)}, which has no place in a Transformer of "
                "its settings; give the settings that came with the weights."
            )

    def layers(
        self, names: Names, depth: Callable[[str], int], positions: str
    ) -> dict[str, np.ndarray]:
        """Take the weights of all layers of both stacks, by our names."""
        kernel, bias, gain, shift = names.endings

        def take(part: str, ending: str) -> np.ndarray:
            return self.take(part.replace("*", ending))

        found = {}
        for stack, sublayers in _SUBLAYERS.items():
            for i in range(depth(stack)):
                path = names.layer.format(stack=stack, i=i, n=i + 1)
                for name in sublayers:
                    parts = names.parts[name.removeprefix("self_")]
                    *linears, norm = (path + part for part in parts)
                    kernels = [take(each, kernel) for each in linears]
                    if names.transposed:
                        kernels = [each.T for each in kernels]
                    vectors = [take(each, bias) for each in linears]
                    vectors += take(norm, gain), take(norm, shift)
                    ours = _sublayer(
                        kernels,
                        [each.reshape(-1) for each in vectors],
                        positions,
                    )
                    for part, array in ours.items():
                        found[f"{stack}/layer_{i}/{name}{part}"] = array
        return found


def _sublayer(
    kernels: list[np.ndarray], vectors: list[np.ndarray], positions: str
) -> dict[str, np.ndarray]:
    """Return our arrays by what follows the name of the sub-layer."""
    *biases, gain, shift = vectors
    order = column_order(positions, len(gain))
    norm = {"_norm/gamma": gain[order], "_norm/beta": shift[order]}
    if len(kernels) == 2:
        return norm | {
            "/widen/kernel": kernels[0][order],
            "/widen/bias": biases[0],
            "/narrow/kernel": kernels[1][:, order],
            "/narrow/bias": biases[1][order],
        }
    query, key, value, output = kernels
    output = output[:, order]
    return norm | {
        "/query": query[order],
        "/key": key[order],
        "/value": value[order],
        "/output": output,
        "/query_bias": biases[0],
        "/output_bias": biases[3][order] + biases[2] @ output,
    }


def column_order(positions: str, d_model: int) -> np.ndarray | slice:
    """Return the order that makes our columns of theirs: `theirs[..., order]`.

    The rest of a model does not depend on the order of its `d_model` columns,
    as long as it is the same everywhere.
    """
    if positions != "sinusoidal":
        return slice(None)
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)
