"""Reads what models from elsewhere are, by tables of names.

The layers of other systems differ from ours in these points:

- Keys and values have biases. A key bias adds the same number to every score of
  a query and cancels in the softmax, so it is dropped. The weights of a query
  sum to 1, so a value bias reaches the output unchanged: it is added to the
  output bias.
- Sines come before cosines. Where ours alternate, as in the paper, all columns
  of width D are put in our order.

Axes: D model width, V pieces of ours, R rows of theirs.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.data.tokenizer import Tokenizer

# The bias of logits that no search may choose: exp(-100) is 0 in float32, and
# larger numbers would spoil the loss of a fine-tuning with label smoothing.
_NEVER = np.float32(-100.0)
_SUBLAYERS = {
    "encoder": ("attention", "feed_forward"),
    "decoder": ("self_attention", "cross_attention", "feed_forward"),
}


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model from elsewhere, by our names."""

    model: ModelConfig
    # All, by names such as `encoder/layer_0/attention/query`.
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer  # With our ids.


class Settings:
    """The settings in a file of a model from elsewhere, `what`."""

    def __init__(self, values: Mapping[str, Any], what: object) -> None:
        self.values = values
        self.what = what

    def numbers(self, names: Mapping[str, str]) -> dict[str, int]:
        """Return our numbers above 0, by a table of their names and ours."""
        numbers: dict[str, int] = {}
        for theirs, ours in names.items():
            value = self.values.get(theirs)
            if type(value) is not int or value < 1:
                self.refuse(theirs, "a whole number above 0")
            if numbers.setdefault(ours, value) != value:
                self.refuse(theirs, str(numbers[ours]))
        return numbers

    def check(self, allowed: Mapping[str, Sequence[Any]]) -> None:
        """Refuse values that we cannot follow; the default is the first."""
        for name, values in allowed.items():
            self.follow(name, values, values[0])

    def follow(
        self, name: str, allowed: Collection[Any], default: Any = None
    ) -> Any:
        """Return a setting's value, which must be one that we can follow."""
        value = self.values.get(name, default)
        if value not in list(allowed):
            self.refuse(name, " or ".join(map(repr, allowed)))
        return value

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Refuse the model, because a setting is not as expected."""
        raise UserError(
            f"{self.what} cannot be imported exactly: its setting {name} is "
            f"{self.values.get(name)!r}, expected {expected}."
        )


def model_config(
    *, encoder_layers: int, decoder_layers: int, **others: Any
) -> ModelConfig:
    """Make the configuration of a model whose linear parts all have biases."""
    if encoder_layers == decoder_layers:
        others["num_layers"] = encoder_layers
    else:
        others["encoder_layers"] = encoder_layers
        others["decoder_layers"] = decoder_layers
    return ModelConfig(attention_bias=True, logits_bias=True, **others)


class Names(NamedTuple):
    """How a format names the arrays of a layer."""

    # Its path, with `{stack}` and its number `{i}` from 0 or `{n}` from 1.
    layer: str
    # What a * stands for: in a kernel, its bias, a norm's gain and its bias.
    endings: tuple[str, str, str, str]
    # Of each of our sub-layers what the names begin with, and how they end:
    # query, key, value and output, or widen and narrow; last the norm.
    parts: Mapping[str, tuple[str, Sequence[str]]]
    transposed: bool = False  # Whether kernels are `(out, in)`.


class Arrays:
    """The arrays of the file or folder `what`, each to be taken once."""

    def __init__(self, arrays: Mapping[str, np.ndarray], what: object) -> None:
        self.left = dict(arrays)
        self._what = what

    def take(self, name: str) -> np.ndarray:
        """Return an array that a Transformer has, or refuse the model."""
        if name not in self.left:
            raise UserError(
                f"{self._what} lacks {name}, which its settings ask for; "
                "download both again."
            )
        return self.left.pop(name)

    def layers(self, names: Names, model: ModelConfig) -> dict[str, np.ndarray]:
        """Take the weights of all layers, by our names; nothing may be left."""
        weights = {}
        for stack, sublayers in _SUBLAYERS.items():
            for i in range(model.layers_of(stack)):
                path = names.layer.format(stack=stack, i=i, n=i + 1)
                for name in sublayers:
                    begin, ends = names.parts[name.removeprefix("self_")]
                    parts = [path + begin + end for end in ends]
                    ours = self._sublayer(names, parts, model.positions)
                    for part, array in ours.items():
                        weights[f"{stack}/layer_{i}/{name}{part}"] = array
        if self.left:
            raise UserError(
                f"{self._what} cannot be imported exactly: no setting asks for "
                f"its {min(self.left)}; give the settings of these weights."
            )
        return weights

    def _sublayer(
        self, names: Names, parts: Sequence[str], positions: str
    ) -> dict[str, np.ndarray]:
        """Take our arrays by what follows the name of the sub-layer."""
        *linears, norm = parts
        kernel, bias, *of_norm = names.endings
        kernels = [self.take(x.replace("*", kernel)) for x in linears]
        if names.transposed:
            kernels = [each.T for each in kernels]
        biases = [self.take(x.replace("*", bias)).ravel() for x in linears]
        gain, shift = (self.take(norm.replace("*", x)).ravel() for x in of_norm)
        order = column_order(positions, len(gain))
        ours = {"_norm/gamma": gain[order], "_norm/beta": shift[order]}
        if len(kernels) == 2:
            return ours | {
                "/widen/kernel": kernels[0][order],
                "/widen/bias": biases[0],
                "/narrow/kernel": kernels[1][:, order],
                "/narrow/bias": biases[1][order],
            }
        query, key, value, output = kernels
        output = output[:, order]
        return ours | {
            "/query": query[order],
            "/key": key[order],
            "/value": value[order],
            "/output": output,
            "/query_bias": biases[0],
            "/output_bias": biases[3][order] + biases[2] @ output,
        }


def column_order(positions: str, d_model: int) -> np.ndarray | slice:
    """Return the order of their columns that is ours, `theirs[..., order]`."""
    if positions != "sinusoidal":
        return slice(None)
    return np.arange(d_model).reshape(2, -1).T.reshape(-1)


def logits(
    table: np.ndarray, bias: np.ndarray, rows: np.ndarray, lacking: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the matrix and bias of the logits, `(V, D)` and `(V,)`.

    They are made of theirs, `(R, D)` and `(R,)`, by the row of each of our
    pieces. One that they are `lacking` is never written.
    """
    return {
        "embedding/table": np.where(lacking[:, None], 0, table[rows]),
        "embedding/bias": np.where(lacking, _NEVER, bias[rows]),
    }
