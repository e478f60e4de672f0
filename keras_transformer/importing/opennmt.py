"""Reads a Transformer that OpenNMT-tf 2 has trained, without OpenNMT-tf.

The folder has TensorFlow's `checkpoint` and its files, or is the `avg` of such
a folder. There, or in the folder above, are `model_description.py`, a .yml
file with `data:`, and the vocabularies and sentencepiece models that it names.

It differs from ours in these points:

- Norms come first, positions are tensor2tensor's and count from 1, and the
  source has no end token: settings of the model.
- Keys and values have biases: `imported.layer_weights` folds them.
- Ids differ: rows of the matrices are put in our order. The pieces of two
  vocabularies become one table. A side reads a piece that it lacks as the
  unknown one, and never writes it.
- There may be three matrices instead of one: then none is tied.

Axes: D model width, V pieces of ours.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import opennmt_settings
from keras_transformer.importing.imported import (
    NEVER,
    Imported,
    Linear,
    Norm,
    Sublayer,
    layer_weights,
)
from keras_transformer.importing.opennmt_settings import DESCRIPTION, Side
from keras_transformer.importing.settings import model_config

# The epsilon of Keras 2's layer norms, which OpenNMT-tf does not change.
NORM_EPSILON = 1e-3
_PADDING, _BEGIN, _END, _UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
_INPUTS = "examples_inputter"
_SOURCE = f"{_INPUTS}/features_inputter/embedding"
_TARGET = f"{_INPUTS}/labels_inputter/embedding"
_OUTPUT = "decoder/output_layer"
# Their names of our sub-layers, and of projections.
_SUBLAYERS = {
    "attention": "self_attention",
    "self_attention": "self_attention",
    "cross_attention": "attention/0",
    "feed_forward": "ffn",
}
_ATTENTION = ("linear_queries", "linear_keys", "linear_values", "linear_output")
_FEED_FORWARD = ("inner", "outer")
# TensorFlow's errors for a missing or damaged checkpoint.
_UNREADABLE = (
    IndexError,
    RuntimeError,
    TypeError,
    ValueError,
    tf.errors.OpError,
)


def is_here(folder: pathlib.Path) -> bool:
    """Return whether the folder holds a checkpoint of TensorFlow."""
    return (folder / "checkpoint").is_file()


def read(folder: pathlib.Path) -> Imported:
    """Read the folder's newest checkpoint.

    Raises:
        UserError: If something is missing, or cannot be imported exactly.
    """
    home, above = folder, folder.resolve().parent
    if not (home / DESCRIPTION).is_file() and (above / DESCRIPTION).is_file():
        home = above
    num_heads = opennmt_settings.read_heads(home)
    data = opennmt_settings.read_data(home)
    source_end = opennmt_settings.read_source_end(data)
    source, target = (
        opennmt_settings.read_side(data, side, home)
        for side in ("source", "target")
    )
    found = _Variables(folder)
    embeddings, logits_bias = _embeddings(found, source, target)
    weights = _layers(found)
    for name, array in embeddings.items():
        weights[f"{name}/table"] = array
    weights["embedding/bias"] = logits_bias
    found.check_all_taken()
    pieces = _pieces(source, target)
    model = model_config(
        str(home / DESCRIPTION),
        encoder_layers=found.num_layers("encoder"),
        decoder_layers=found.num_layers("decoder"),
        d_model=embeddings["embedding"].shape[1],
        num_heads=num_heads,
        vocab_size=len(pieces),
        ffn_dim=len(weights["encoder/layer_0/feed_forward/widen/bias"]),
        positions="tensor2tensor",
        norm_epsilon=NORM_EPSILON,
        norm_first="encoder/norm/gamma" in weights,
        first_position=1,
        tied_embeddings=len(embeddings) == 1,
        source_end=source_end,
    )
    lacking = {
        "source": _lacking(source, pieces),
        "target": _lacking(target, pieces),
    }
    vocabulary = pack(
        source.sentencepiece,
        target.sentencepiece,
        pieces,
        lacking=lacking,
        has_tags=False,
    )
    return Imported(model, weights, PairedTokenizer(vocabulary))


def _unreadable(folder: pathlib.Path) -> UserError:
    advice = "copy the whole folder"
    if set("[\\") & set(str(folder.resolve())):
        advice = "TensorFlow takes brackets in a path for a pattern: rename it"
    return UserError(
        f"Expected the files that {folder / 'checkpoint'} names, cannot read "
        f"them; {advice}."
    )


class _Variables:
    """The model's variables in a checkpoint, each to be taken once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        try:
            state = tf.train.latest_checkpoint(str(folder))
            self._reader = tf.train.load_checkpoint(state)
        except _UNREADABLE:
            raise _unreadable(folder) from None
        suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
        self._names = {
            name.removeprefix("model/").removesuffix(suffix)
            for name in self._reader.get_variable_to_shape_map()
            if name.startswith("model/")
            and name.endswith(suffix)
            and "/.OPTIMIZER_SLOT/" not in name
        }
        self._left = set(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def num_layers(self, stack: str) -> int:
        numbers = {
            name.split("/")[2]
            for name in self._names
            if name.startswith(f"{stack}/layers/")
        }
        return len(numbers)

    def take(self, name: str) -> np.ndarray:
        """Read a variable as float32."""
        if name not in self._names:
            raise UserError(
                f"{self.folder} cannot be imported: its checkpoint lacks "
                f"model/{name}, which a Transformer of OpenNMT-tf 2 has."
            )
        self._left.discard(name)
        try:
            array = self._reader.get_tensor(
                f"model/{name}/.ATTRIBUTES/VARIABLE_VALUE"
            )
        except _UNREADABLE:
            raise _unreadable(self.folder) from None
        return np.asarray(array, "float32")

    def linear(self, name: str) -> Linear:
        """Read kernel and bias; a missing bias is zero."""
        kernel = self.take(f"{name}/kernel")
        if f"{name}/bias" in self:
            return Linear(kernel, self.take(f"{name}/bias"))
        return Linear(kernel, np.zeros(kernel.shape[1], "float32"))

    def norm(self, name: str) -> Norm:
        return Norm(self.take(f"{name}/gamma"), self.take(f"{name}/beta"))

    def check_all_taken(self) -> None:
        """Refuse a model with variables that ours has no use for."""
        if self._left:
            raise UserError(
                f"{self.folder} cannot be imported exactly: a Transformer of "
                f"ours has no place for its model/{min(self._left)}."
            )


def _layers(found: _Variables) -> dict[str, np.ndarray]:
    """Collect the weights of both stacks by our names."""

    def sublayer(stack: str, i: int, kind: str) -> Sublayer:
        path = f"{stack}/layers/{i}/{_SUBLAYERS[kind]}"
        parts = _FEED_FORWARD if kind == "feed_forward" else _ATTENTION
        linears = [found.linear(f"{path}/layer/{part}") for part in parts]
        # Before the sub-layer, or behind it.
        is_first = f"{path}/input_layer_norm/gamma" in found
        place = "input" if is_first else "output"
        return Sublayer(linears, found.norm(f"{path}/{place}_layer_norm"))

    weights = layer_weights(found.num_layers, "tensor2tensor", sublayer)
    for stack in ("encoder", "decoder"):
        if f"{stack}/layer_norm/gamma" in found:
            norm = found.norm(f"{stack}/layer_norm")
            weights[f"{stack}/norm/gamma"] = norm.gain
            weights[f"{stack}/norm/beta"] = norm.bias
    return weights


def _pieces(source: Side, target: Side) -> list[str]:
    """List all pieces in the order of our ids; those of the target first."""
    written = dict.fromkeys((*target.vocabulary[3:], *source.vocabulary[3:]))
    # A vocabulary may have a piece with the name of the unknown one.
    unknown = f"{_UNKNOWN}?" if _UNKNOWN in written else _UNKNOWN
    return [_PADDING, unknown, _BEGIN, _END, *written]


def _lacking(side: Side, pieces: Sequence[str]) -> list[int]:
    """List the ids of pieces that a side lacks, except the first four."""
    own = set(side.vocabulary)
    return [i for i, piece in enumerate(pieces) if i > 3 and piece not in own]


def _rows(
    side: Side, pieces: Sequence[str], height: int, name: str
) -> np.ndarray:
    """Find each of our rows among theirs; the unknown row for others.

    Returns:
        Integers `(V,)`.
    """
    unknown = len(side.vocabulary)
    if height != unknown + 1:
        raise UserError(
            f"Expected a {name} of {height - 1} lines, as the checkpoint's "
            f"matrix has, received {unknown}; give the one that the model was "
            "trained with."
        )
    place = {piece: i for i, piece in enumerate(side.vocabulary)}
    rows = np.array([place.get(piece, unknown) for piece in pieces])
    rows[1] = unknown
    return rows


def _embeddings(
    found: _Variables, source: Side, target: Side
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the matrices `(V, D)` by our names, shared or not, and a bias.

    A checkpoint saves a variable that several layers share once, under the
    first of their names. So the missing names show what a model shares.
    """
    of_source = found.take(_SOURCE)
    of_target = found.take(_TARGET) if _TARGET in found else of_source
    of_output = of_target
    if f"{_OUTPUT}/kernel" in found:
        of_output = found.take(f"{_OUTPUT}/kernel").T
    bias = np.zeros(len(of_output), "float32")
    if f"{_OUTPUT}/bias" in found:
        bias = found.take(f"{_OUTPUT}/bias")
    pieces = _pieces(source, target)
    reads = _rows(source, pieces, len(of_source), "source_vocabulary")
    writes = _rows(target, pieces, len(of_target), "target_vocabulary")
    if of_output is of_source and source.vocabulary == target.vocabulary:
        return {"embedding": of_output[writes]}, bias[writes]
    # Pieces that the target's vocabulary lacks are never written.
    missing = writes == len(target.vocabulary)
    missing[1] = False
    return {
        "source_embedding": of_source[reads],
        "target_embedding": of_target[writes],
        "embedding": np.where(missing[:, None], 0, of_output[writes]),
    }, np.where(missing, np.float32(NEVER), bias[writes])
