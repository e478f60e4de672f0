"""Reads a Transformer that OpenNMT-tf 2 has trained, without OpenNMT-tf.

The folder has TensorFlow's `checkpoint` and its files, or is the `avg` of such
a folder. There, or in the folder above, are `model_description.py`, a .yml
file with `data:`, and the vocabularies and sentencepiece models that it names.

It differs from ours in these points:

- Norms come first, positions are tensor2tensor's and count from 1, and the
  source has no end token: settings of the model.
- Keys and values have biases: `imported` folds them.
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
from keras_transformer.importing.imported import NEVER, Arrays, Imported, Names
from keras_transformer.importing.opennmt_settings import DESCRIPTION, Side
from keras_transformer.importing.settings import model_config

# The epsilon of Keras 2's layer norms, which OpenNMT-tf does not change.
NORM_EPSILON = 1e-3
_PADDING, _BEGIN, _END, _UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
_INPUTS = "model/examples_inputter"
_SOURCE = f"{_INPUTS}/features_inputter/embedding"
_TARGET = f"{_INPUTS}/labels_inputter/embedding"
_OUTPUT = "model/decoder/output_layer"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = "model/{stack}/layers/{i}/"
_PROJECTIONS = ("queries", "keys", "values", "output")


def read(folder: pathlib.Path) -> Imported:
    """Read the folder's newest checkpoint."""
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
    pieces = _pieces(source, target)
    arrays = Arrays(_variables(folder), folder)
    weights = _embeddings(arrays, source, target, pieces)
    norm_first = "model/encoder/layer_norm/gamma" in arrays.left
    depths = {stack: _depth(arrays, stack) for stack in ("encoder", "decoder")}
    weights |= arrays.layers(
        _names(norm_first), depths.__getitem__, "tensor2tensor"
    )
    if norm_first:
        for stack in depths:
            for part in ("gamma", "beta"):
                array = arrays.take(f"model/{stack}/layer_norm/{part}")
                weights[f"{stack}/norm/{part}"] = array
    arrays.check_all_taken()
    model = model_config(
        home / DESCRIPTION,
        encoder_layers=depths["encoder"],
        decoder_layers=depths["decoder"],
        d_model=weights["embedding/table"].shape[1],
        num_heads=num_heads,
        vocab_size=len(pieces),
        ffn_dim=len(weights["encoder/layer_0/feed_forward/widen/bias"]),
        positions="tensor2tensor",
        norm_epsilon=NORM_EPSILON,
        norm_first=norm_first,
        first_position=1,
        tied_embeddings="source_embedding/table" not in weights,
        source_end=source_end,
    )
    lacking = {}
    for name, side in (("source", source), ("target", target)):
        own = {*pieces[:4], *side.vocabulary}
        lacking[name] = [i for i, x in enumerate(pieces) if x not in own]
    vocabulary = pack(
        source.sentencepiece,
        target.sentencepiece,
        pieces,
        lacking=lacking,
        has_tags=False,
    )
    return Imported(model, weights, PairedTokenizer(vocabulary))


def _variables(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Read the model's variables as float32; a missing bias is zero."""
    found = {}
    try:
        state = tf.train.latest_checkpoint(str(folder))
        reader = tf.train.load_checkpoint(state)
        for name in reader.get_variable_to_shape_map():
            if (
                name.startswith("model/")
                and name.endswith(_SUFFIX)
                and "/.OPTIMIZER_SLOT/" not in name
            ):
                array = np.asarray(reader.get_tensor(name), "float32")
                found[name.removesuffix(_SUFFIX)] = array
    except (
        *(IndexError, RuntimeError, TypeError, ValueError),
        tf.errors.OpError,
    ):
        advice = "copy the whole folder"
        if set("[\\") & set(str(folder.resolve())):
            advice = (
                "TensorFlow takes brackets in a path for a pattern: rename it"
            )
        raise UserError(
            f"Expected the files that {folder / 'checkpoint'} names, cannot "
            f"read them; {advice}."
        ) from None
    for name in [name for name in found if name.endswith("/kernel")]:
        zeros = np.zeros(found[name].shape[-1:], "float32")
        found.setdefault(f"{name.removesuffix('kernel')}bias", zeros)
    return found


def _names(norm_first: bool) -> Names:
    # Before the sub-layer, or behind it.
    norm = f"{'input' if norm_first else 'output'}_layer_norm/*"

    def attention(name: str) -> tuple[str, ...]:
        projections = (f"{name}/layer/linear_{x}/*" for x in _PROJECTIONS)
        return (*projections, f"{name}/{norm}")

    return Names(
        layer=_LAYER,
        endings=("kernel", "bias", "gamma", "beta"),
        parts={
            "attention": attention("self_attention"),
            "cross_attention": attention("attention/0"),
            "feed_forward": (
                *("ffn/layer/inner/*", "ffn/layer/outer/*"),
                f"ffn/{norm}",
            ),
        },
    )


def _depth(arrays: Arrays, stack: str) -> int:
    path = _LAYER.format(stack=stack, i="")[:-1]
    found = (name for name in arrays.left if name.startswith(path))
    return len({name.removeprefix(path).partition("/")[0] for name in found})


def _pieces(source: Side, target: Side) -> list[str]:
    """List all pieces in the order of our ids; those of the target first."""
    written = dict.fromkeys((*target.vocabulary[3:], *source.vocabulary[3:]))
    # A vocabulary may have a piece with the name of the unknown one.
    unknown = f"{_UNKNOWN}?" if _UNKNOWN in written else _UNKNOWN
    return [_PADDING, unknown, _BEGIN, _END, *written]


def _rows(
    side: Side, pieces: Sequence[str], height: int, name: str
) -> np.ndarray:
    """Find our rows among theirs, `(V,)`; the unknown row for others."""
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
    arrays: Arrays, source: Side, target: Side, pieces: Sequence[str]
) -> dict[str, np.ndarray]:
    """Take the matrices `(V, D)`, shared or not, and the bias of the logits."""
    # A checkpoint saves a variable that several layers share once, under the
    # first of their names. So the missing names show what a model shares.
    of_source = arrays.take(_SOURCE)
    of_target = arrays.left.pop(_TARGET, of_source)
    of_output = of_target
    if f"{_OUTPUT}/kernel" in arrays.left:
        of_output = arrays.take(f"{_OUTPUT}/kernel").T
    zeros = np.zeros(len(of_output), "float32")
    bias = arrays.left.pop(f"{_OUTPUT}/bias", zeros)
    reads = _rows(source, pieces, len(of_source), "source_vocabulary")
    writes = _rows(target, pieces, len(of_target), "target_vocabulary")
    if of_output is of_source and source.vocabulary == target.vocabulary:
        return {
            "embedding/table": of_output[writes],
            "embedding/bias": bias[writes],
        }
    # Pieces that the target's vocabulary lacks are never written.
    missing = writes == len(target.vocabulary)
    missing[1] = False
    return {
        "source_embedding/table": of_source[reads],
        "target_embedding/table": of_target[writes],
        "embedding/table": np.where(missing[:, None], 0, of_output[writes]),
        "embedding/bias": np.where(missing, np.float32(NEVER), bias[writes]),
    }
