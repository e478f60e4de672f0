"""Reads a Transformer that OpenNMT-tf 2 has trained, without OpenNMT-tf.

The folder has TensorFlow's `checkpoint` and its files, or is the `avg` of such
a folder. There, or in the folder above, are `model_description.py`, a .yml
file with `data:`, and the vocabularies and sentencepiece models that it names.

It differs from ours in these points:

- Norms come first, positions are tensor2tensor's and count from 1, and the
  source has no end token: settings of the model.
- Keys and values have biases: `imported.attention` folds them.
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

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import opennmt_settings
from keras_transformer.importing.imported import NEVER, Imported, attention
from keras_transformer.importing.opennmt_settings import Side
from keras_transformer.importing.settings import check_heads, stack_depths

# The epsilon of Keras 2's layer norms, which OpenNMT-tf does not change.
NORM_EPSILON = 1e-3
_PADDING, _BEGIN, _END, _UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
_INPUTS = "examples_inputter"
_SOURCE = f"{_INPUTS}/features_inputter/embedding"
_TARGET = f"{_INPUTS}/labels_inputter/embedding"
_OUTPUT = "decoder/output_layer"
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
    description = opennmt_settings.DESCRIPTION
    if not (home / description).is_file() and (above / description).is_file():
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
    weights = {}
    for stack in ("encoder", "decoder"):
        weights.update(_stack(found, stack))
    tied = len(embeddings) == 1
    for name, array in embeddings.items():
        weights[f"{name}/table"] = array
    weights["embedding/bias"] = logits_bias
    found.check_all_taken()
    pieces = _pieces(source, target)
    d_model = embeddings["embedding"].shape[1]
    check_heads(num_heads, d_model, str(home / opennmt_settings.DESCRIPTION))
    model = ModelConfig(
        vocab_size=len(pieces),
        **stack_depths(
            found.num_layers("encoder"), found.num_layers("decoder")
        ),
        d_model=d_model,
        num_heads=num_heads,
        key_dim=d_model // num_heads,
        value_dim=d_model // num_heads,
        ffn_dim=len(weights["encoder/layer_0/feed_forward/widen/bias"]),
        positions="tensor2tensor",
        norm_epsilon=NORM_EPSILON,
        attention_bias=True,
        logits_bias=True,
        norm_first="encoder/norm/gamma" in weights,
        first_position=1,
        tied_embeddings=tied,
        source_end=source_end,
    )
    tokenizer = PairedTokenizer(
        pack(
            source.sentencepiece,
            target.sentencepiece,
            pieces,
            lacking={
                "source": _lacking(source, pieces),
                "target": _lacking(target, pieces),
            },
            has_tags=False,
        )
    )
    return Imported(model, weights, tokenizer)


def _unreadable(folder: pathlib.Path) -> UserError:
    return UserError(
        f"Expected the files that {folder / 'checkpoint'} names, cannot read "
        "them; copy the whole folder."
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
        start = f"{stack}/layers/"
        return len(
            {
                name.removeprefix(start).partition("/")[0]
                for name in self._names
                if name.startswith(start)
            }
        )

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

    def linear(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Read kernel and bias; a missing bias is zero."""
        kernel = self.take(f"{name}/kernel")
        if f"{name}/bias" in self:
            return kernel, self.take(f"{name}/bias")
        return kernel, np.zeros(kernel.shape[1], "float32")

    def check_all_taken(self) -> None:
        """Refuse a model with variables that ours has no use for."""
        if self._left:
            raise UserError(
                f"{self.folder} cannot be imported exactly: a Transformer of "
                f"ours has no place for its model/{min(self._left)}."
            )


def _stack(found: _Variables, stack: str) -> dict[str, np.ndarray]:
    """Collect the weights of the encoder or the decoder by our names."""
    weights = {}
    if f"{stack}/layer_norm/gamma" in found:
        weights.update(_norm(found, f"{stack}/layer_norm", f"{stack}/norm"))
    sublayers = {"self_attention": "attention"}
    if stack == "decoder":
        sublayers = {
            "self_attention": "self_attention",
            "attention/0": "cross_attention",
        }
    for i in range(found.num_layers(stack)):
        theirs, ours = f"{stack}/layers/{i}", f"{stack}/layer_{i}"
        for their_name, our_name in sublayers.items():
            name = f"{theirs}/{their_name}"
            of_layer = attention(
                *(
                    found.linear(f"{name}/layer/linear_{part}")
                    for part in ("queries", "keys", "values", "output")
                )
            )
            for part, array in of_layer.items():
                weights[f"{ours}/{our_name}/{part}"] = array
            weights.update(_layer_norm(found, name, f"{ours}/{our_name}"))
        name, to = f"{theirs}/ffn", f"{ours}/feed_forward"
        for part, linear in (("inner", "widen"), ("outer", "narrow")):
            kernel, bias = found.linear(f"{name}/layer/{part}")
            weights[f"{to}/{linear}/kernel"] = kernel
            weights[f"{to}/{linear}/bias"] = bias
        weights.update(_layer_norm(found, name, to))
    return weights


def _layer_norm(found: _Variables, name: str, to: str) -> dict[str, np.ndarray]:
    """Return the norm before a sub-layer, or the one behind it."""
    place = "input" if f"{name}/input_layer_norm/gamma" in found else "output"
    return _norm(found, f"{name}/{place}_layer_norm", f"{to}_norm")


def _norm(found: _Variables, name: str, to: str) -> dict[str, np.ndarray]:
    return {
        f"{to}/{part}": found.take(f"{name}/{part}")
        for part in ("gamma", "beta")
    }


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
