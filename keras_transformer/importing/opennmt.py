"""Reads a Transformer that OpenNMT-tf 2 has trained, without OpenNMT-tf.

The folder has TensorFlow's `checkpoint` and its files, or is the `avg` of such
a folder. There, or in the folder above, are `model_description.py`, a .yml
file with `data:`, and the vocabularies and sentencepiece models that it names.

`model_description.py` is Python that OpenNMT-tf imports. Here it is read and
never run: we need only a name of its catalogue, or the `num_heads=` of its
Transformer.

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
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import UNK_ID, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import source_files
from keras_transformer.importing.imported import (
    Arrays,
    Imported,
    Names,
    Settings,
    logits,
    model_config,
)

CHECKPOINT, _DESCRIPTION = "checkpoint", "model_description.py"
# The epsilon of Keras 2's layer norms, which OpenNMT-tf does not change.
_EPSILON = 1e-3
_PADDING, _BEGIN, _END, _UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
_INPUTS = "model/examples_inputter"
_SOURCE = f"{_INPUTS}/features_inputter/embedding"
_TARGET = f"{_INPUTS}/labels_inputter/embedding"
_OUTPUT = "model/decoder/output_layer"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = "model/{stack}/layers/{i}/"
_FIRST_LAYER = _LAYER.format(stack="encoder", i=0)
# The catalogue's names with our architecture, and their heads.
_HEADS = {
    "Transformer": 8,
    "TransformerBase": 8,
    "TransformerBaseSharedEmbeddings": 8,
    "TransformerBig": 16,
    "TransformerBigSharedEmbeddings": 16,
    "TransformerTiny": 2,
    "ScalingNmtEnDe": 16,
}
# Arguments of `opennmt.models.Transformer`; the weights show all the others.
_EXPECTED = {
    "ffn_activation": ("tf.nn.relu",),
    "position_encoder_class": (
        "opennmt.layers.SinusoidalPositionEncoder",
        "SinusoidalPositionEncoder",
    ),
}
_FROM_CATALOGUE = r"""get_model_from_catalog\(\s*["'](\w+)"""
_NO_EFFECT = {"nbest_size", "alpha", "sp_nbest_size", "sp_alpha"}


class Side(NamedTuple):
    """One language of the model."""

    # By OpenNMT-tf's ids; the unknown piece has the id after the last.
    vocabulary: tuple[str, ...]
    sentencepiece: bytes  # Serialised model that makes its pieces.


def read(folder: pathlib.Path) -> Imported:
    """Read the folder's newest checkpoint."""
    home, above = folder, folder.resolve().parent
    if not (home / _DESCRIPTION).is_file() and (above / _DESCRIPTION).is_file():
        home = above
    num_heads = read_heads(home)
    data = _data(home)
    source_end = read_source_end(data)
    source, target = (read_side(data, x, home) for x in ("source", "target"))
    pieces = _pieces(source, target)
    arrays = Arrays(_variables(folder), folder)
    weights, lacking = _embeddings(arrays, source, target, pieces)
    norm_first = "model/encoder/layer_norm/gamma" in arrays.left
    model = model_config(
        encoder_layers=_depth(arrays, "encoder"),
        decoder_layers=_depth(arrays, "decoder"),
        d_model=weights["embedding/table"].shape[1],
        num_heads=num_heads,
        vocab_size=len(pieces),
        ffn_dim=len(arrays.left[f"{_FIRST_LAYER}ffn/layer/inner/bias"]),
        positions="tensor2tensor",
        norm_epsilon=_EPSILON,
        norm_first=norm_first,
        first_position=1,
        tied_embeddings="source_embedding/table" not in weights,
        source_end=source_end,
    )
    if norm_first:
        for stack in ("encoder", "decoder"):
            for part in ("gamma", "beta"):
                array = arrays.take(f"model/{stack}/layer_norm/{part}")
                weights[f"{stack}/norm/{part}"] = array
    weights |= arrays.layers(_names(norm_first), model)
    models = source.sentencepiece, target.sentencepiece
    vocabulary = pack(*models, pieces, lacking=lacking, has_tags=False)
    return Imported(model, weights, PairedTokenizer(vocabulary))


def read_heads(folder: pathlib.Path) -> int:
    """Read the number of heads, which no weight's shape shows."""
    path = folder / _DESCRIPTION
    advice = "copy that which OpenNMT-tf wrote into its model directory"
    with source_files.refusing(path, "the source of a model", advice=advice):
        source = re.sub("#.*", "", path.read_text(encoding="utf-8"))
    given = re.findall(r"\b(\w+)\s*=\s*([^,)\n]+)", source)
    heads = " and ".join({x for name, x in given if name == "num_heads"})
    name = re.search(_FROM_CATALOGUE, source)
    is_unclear = "**" in source or (name and heads)
    if name and not is_unclear:
        settings = Settings({"model": name[1]}, path)
        return _HEADS[settings.follow("model", _HEADS)]
    settings = Settings(dict(given), path)
    settings.check(_EXPECTED)
    if is_unclear or not heads.isdigit():
        settings.refuse(
            "num_heads",
            "one number, written as num_heads=8, without ** or a name of the "
            "catalogue in this file",
        )
    return int(heads)


def _data(folder: pathlib.Path) -> Mapping[str, Any]:
    """Read the part `data` of the training's configuration."""
    parts = {}
    for path in sorted(folder.glob("*.yml")) + sorted(folder.glob("*.yaml")):
        content = source_files.parse_yaml(source_files.read_bytes(path), path)
        data = content.get("data") if isinstance(content, dict) else None
        if isinstance(data, dict) and "source_vocabulary" in data:
            parts[path] = data
    if len(parts) != 1:
        names = ", ".join(path.name for path in parts) or "none"
        raise UserError(
            f"Expected in {folder} one .yml file with source_vocabulary under "
            f"data, found {names}; copy that of the training there."
        )
    return next(iter(parts.values()))


def read_side(data: Mapping[str, Any], side: str, folder: pathlib.Path) -> Side:
    """Read the vocabulary and tokenization of `"source"` or `"target"`."""
    name = f"{side}_vocabulary"
    path = _find(folder, data.get(name), name)
    # Split lines as TensorFlow does, not as Python does: U+2028 ends none.
    text = path.read_bytes().decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n")
    vocabulary = tuple(line.removesuffix("\r") for line in lines)
    is_special = vocabulary[:3] == (_PADDING, _BEGIN, _END)
    if not is_special or len(set(vocabulary)) < len(vocabulary):
        raise UserError(
            f"Expected {_PADDING}, {_BEGIN}, {_END} and then other pieces in "
            f"{path}, each once, received {', '.join(vocabulary[:3])} first or "
            "one twice; give the vocabulary of the training."
        )
    return Side(vocabulary, _sentencepiece(data, side, folder))


def read_source_end(data: Mapping[str, Any]) -> bool:
    """Return whether sources end with an end token; by default they do not.

    Refuse sources that begin with a token, and targets without theirs.
    """
    names = "source_sequence_controls", "target_sequence_controls"
    # If controls are given, a mark that is not among them is off.
    source, target = (data.get(name) or {} for name in names)
    if source.get("start"):
        Settings(data, "The model").refuse(names[0], "start: false")
    if target and not (target.get("start") and target.get("end")):
        Settings(data, "The model").refuse(names[1], "start and end: true")
    return bool(source.get("end"))


def _sentencepiece(
    data: Mapping[str, Any], side: str, folder: pathlib.Path
) -> bytes:
    """Return the model that `data` names."""
    name = f"{side}_tokenization"
    config = data.get(name)
    if isinstance(config, str):  # A file of its own.
        path = _find(folder, config, name)
        config = source_files.parse_yaml(source_files.read_bytes(path), path)
    if not isinstance(config, dict):
        config = {"type": config}
    kind = config.get("type", "OpenNMTTokenizer")
    params = dict((config.get("params") if "type" in config else config) or {})
    model = None
    if kind == "SentencePieceTokenizer":
        model = params.pop("model", None)
    elif kind == "OpenNMTTokenizer" and params.pop("mode", None) == "none":
        model = params.pop("sp_model_path", None)
    other = sorted(set(params) - _NO_EFFECT)
    if model is None or other:
        raise UserError(
            f"Expected a SentencePieceTokenizer with a `model` as {name}, "
            f"received {config if data.get(name) else 'none'}; no other "
            "tokenization can be imported."
        )
    return source_files.read_sentencepiece(_find(folder, model, name))


def _find(folder: pathlib.Path, name: Any, setting: str) -> pathlib.Path:
    """Find a file by its name: its path is that of the training machine."""
    path = folder / pathlib.PurePath(str(name)).name
    # A link out of the folder is refused, because errors quote the content.
    if not (path.is_file() and path.resolve().is_relative_to(folder.resolve())):
        raise UserError(
            f"Expected the file that {setting} names in {folder}, found no "
            f"{path.name}; copy it there."
        )
    return path


def _variables(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Read the model's variables as float32; a missing bias is zero."""
    variables = {}
    path = folder / CHECKPOINT
    advice = "copy the whole folder, to a path without brackets"
    with source_files.refusing(
        path, "of a whole model", tf.errors.OpError, advice=advice
    ):
        state = tf.train.latest_checkpoint(str(folder))
        reader = tf.train.load_checkpoint(state)
        for name in reader.get_variable_to_shape_map():
            ours, suffix, _ = name.partition(_SUFFIX)
            # Those of the optimizer have a slot in between.
            if ours.startswith("model/") and suffix and "/." not in ours:
                variables[ours] = np.asarray(reader.get_tensor(name), "float32")
    for name in [name for name in variables if name.endswith("/kernel")]:
        zeros = np.zeros(variables[name].shape[-1:], "float32")
        variables.setdefault(f"{name.removesuffix('kernel')}bias", zeros)
    return variables


def _names(norm_first: bool) -> Names:
    # Before the sub-layer, or behind it.
    norm = f"/{'input' if norm_first else 'output'}_layer_norm/*"
    linears = ("queries", "keys", "values", "output")
    attention = (*(f"/layer/linear_{x}/*" for x in linears), norm)
    return Names(
        layer=_LAYER,
        endings=("kernel", "bias", "gamma", "beta"),
        parts={
            "attention": ("self_attention", attention),
            "cross_attention": ("attention/0", attention),
            "feed_forward": ("ffn", ("/layer/inner/*", "/layer/outer/*", norm)),
        },
    )


def _depth(arrays: Arrays, stack: str) -> int:
    path = _LAYER.format(stack=stack, i="([0-9]+)")
    return len({x[1] for x in map(re.compile(path).match, arrays.left) if x})


def _pieces(source: Side, target: Side) -> list[str]:
    """List all pieces in the order of our ids; those of the target first."""
    written = dict.fromkeys((*target.vocabulary[3:], *source.vocabulary[3:]))
    # A vocabulary may have a piece with the name of the unknown one.
    unknown = f"{_UNKNOWN}?" if _UNKNOWN in written else _UNKNOWN
    return [_PADDING, unknown, _BEGIN, _END, *written]


def _rows(
    side: Side, pieces: Sequence[str], table: np.ndarray, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Find our rows among theirs and which pieces they lack, both `(V,)`."""
    unknown = len(side.vocabulary)
    if len(table) != unknown + 1:
        raise UserError(
            f"Expected a {name} of {len(table) - 1} lines, as the checkpoint, "
            f"received {unknown}; give that of the training."
        )
    place = {piece: i for i, piece in enumerate(side.vocabulary)}
    rows = np.array([place.get(piece, unknown) for piece in pieces])
    rows[UNK_ID] = unknown
    lacking = rows == unknown
    lacking[UNK_ID] = False
    return rows, lacking


def _embeddings(
    arrays: Arrays, source: Side, target: Side, pieces: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, list[int]]]:
    """Take matrices and bias; and, by side, the ids of pieces that it lacks."""
    # A checkpoint saves a variable that several layers share once, under the
    # first of their names. So the missing names show what a model shares.
    of_source = arrays.take(_SOURCE)
    of_target = arrays.left.pop(_TARGET, of_source)
    of_output = of_target
    if f"{_OUTPUT}/kernel" in arrays.left:
        of_output = arrays.take(f"{_OUTPUT}/kernel").T
    zeros = np.zeros(len(of_output), "float32")
    bias = arrays.left.pop(f"{_OUTPUT}/bias", zeros)
    reads, unread = _rows(source, pieces, of_source, "source_vocabulary")
    writes, unwritten = _rows(target, pieces, of_target, "target_vocabulary")
    weights = logits(of_output, bias, writes, unwritten)
    if of_output is not of_source or source.vocabulary != target.vocabulary:
        weights["source_embedding/table"] = of_source[reads]
        weights["target_embedding/table"] = of_target[writes]
    lacking = dict(source=unread, target=unwritten)
    return weights, {x: np.flatnonzero(y).tolist() for x, y in lacking.items()}
