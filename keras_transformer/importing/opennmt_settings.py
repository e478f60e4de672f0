"""Reads the files beside an OpenNMT-tf checkpoint: model source and data.yml.

`model_description.py` is Python that OpenNMT-tf imports. Here it is read and
never run: we need only a name of its catalogue, or the literal arguments of
`opennmt.models.Transformer`.
"""

import ast
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_transformer.config import UserError
from keras_transformer.importing.settings import Settings
from keras_transformer.importing.source_files import (
    parse_yaml,
    read_bytes,
    read_sentencepiece,
)

DESCRIPTION = "model_description.py"
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
_NO_EFFECT = {"nbest_size", "alpha", "sp_nbest_size", "sp_alpha"}


class Side(NamedTuple):
    """One language of the model."""

    # By OpenNMT-tf's ids; the unknown piece has the id after the last.
    vocabulary: tuple[str, ...]
    sentencepiece: bytes  # Serialised model that makes its pieces.


def read_heads(folder: pathlib.Path) -> int:
    """Read the number of heads, which no weight's shape shows."""
    path = folder / DESCRIPTION
    try:
        return _heads(ast.parse(path.read_text(encoding="utf-8")), path)
    except (
        *(OSError, SyntaxError, ValueError),
        *(MemoryError, RecursionError),  # Brackets in brackets.
    ) as error:
        raise UserError(
            f"Expected the source of the model at {path}, cannot read it "
            f"({error}); copy the {DESCRIPTION} that OpenNMT-tf wrote into its "
            "model directory."
        ) from None


def _heads(tree: ast.AST, path: pathlib.Path) -> int:
    models = []
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func)
        if name.split(".")[-1] == "get_model_from_catalog":
            given = getattr(call.args[0], "value", None) if call.args else None
            return _HEADS[
                Settings({"model": given}, path).follow("model", _HEADS)
            ]
        if name.split(".")[-1] == "Transformer" or name == "super().__init__":
            models.append(call)
    if len(models) != 1:
        raise UserError(
            f"{path} cannot be imported: expected a name of OpenNMT-tf's "
            "catalogue or one opennmt.models.Transformer, found "
            f"{len(models)}."
        )
    (model,) = models
    # Names only: a position or a dictionary does not show what it sets.
    if len(model.args) > 2 or any(
        isinstance(each, ast.Starred) or getattr(each, "arg", "") is None
        for each in (*model.args, *model.keywords)
    ):
        raise UserError(
            f"Expected in {path} the two inputters and then names for all "
            "arguments of the Transformer, such as num_heads=8, received "
            f"{ast.unparse(model)}; write the names there."
        )
    settings = Settings(
        {str(word.arg): ast.unparse(word.value) for word in model.keywords},
        path,
    )
    for setting, allowed in _EXPECTED.items():
        settings.follow(setting, allowed, allowed[0])
    heads = settings.values.get("num_heads", "8")
    if not heads.isdigit():
        settings.refuse("num_heads", "a number")
    return int(heads)


def read_data(folder: pathlib.Path) -> Mapping[str, Any]:
    """Read the part `data` of the training's configuration."""
    found = {}
    for path in sorted(folder.glob("*.yml")) + sorted(folder.glob("*.yaml")):
        content = parse_yaml(read_bytes(path), path)
        data = content.get("data") if isinstance(content, dict) else None
        if isinstance(data, dict) and "source_vocabulary" in data:
            found[path] = data
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"Expected in {folder} one .yml file with data: and in it "
            f"source_vocabulary, found {names}; copy the configuration of the "
            "training there, and its vocabularies."
        )
    return next(iter(found.values()))


def read_side(data: Mapping[str, Any], side: str, folder: pathlib.Path) -> Side:
    """Read the vocabulary and tokenization of `"source"` or `"target"`."""
    name = f"{side}_vocabulary"
    path = _find(folder, data.get(name), name)
    # Split lines as TensorFlow does, not as Python does: U+2028 ends none.
    text = path.read_bytes().decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n")
    vocabulary = tuple(line.removesuffix("\r") for line in lines)
    if vocabulary[:3] != ("<blank>", "<s>", "</s>"):
        raise UserError(
            f"Expected <blank>, <s> and </s> as the first lines of {path}, "
            f"received {', '.join(vocabulary[:3])}; give the vocabulary that "
            "the model was trained with."
        )
    if len(set(vocabulary)) < len(vocabulary):
        raise UserError(
            f"{path} has a piece twice; give the vocabulary that the model was "
            "trained with."
        )
    return Side(vocabulary, _sentencepiece(data, side, folder))


def read_source_end(data: Mapping[str, Any]) -> bool:
    """Return whether sources end with an end token; by default they do not.

    Refuse sources that begin with a token, and targets without theirs.
    """
    for side, wanted in (("source", False), ("target", True)):
        name = f"{side}_sequence_controls"
        controls = data.get(name) or {}
        # If controls are given, a mark that is not among them is off.
        start = controls.get("start", wanted and not controls)
        end = controls.get("end", wanted and not controls)
        if bool(start) != wanted or (wanted and not end):
            Settings(data, "The model").refuse(
                name, "start and end: true" if wanted else "start: false"
            )
    return bool((data.get("source_sequence_controls") or {}).get("end"))


def _sentencepiece(
    data: Mapping[str, Any], side: str, folder: pathlib.Path
) -> bytes:
    """Return the model that `data` names."""
    name = f"{side}_tokenization"
    config = data.get(name)
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):  # A file of its own.
            path = _find(folder, config, name)
            config = parse_yaml(read_bytes(path), path)
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
            f"Expected in the data's {name} a type: SentencePieceTokenizer "
            "with params: and in it model: FILE, received "
            f"{config if data.get(name) else 'none'}; only pieces of "
            "sentencepiece can be made from text here."
        )
    return read_sentencepiece(_find(folder, model, name))


def _find(folder: pathlib.Path, name: Any, setting: str) -> pathlib.Path:
    """Find a file of the folder, by its path or its name alone."""
    # Files elsewhere are refused, because errors quote their content.
    if isinstance(name, str):
        path = pathlib.PurePath(name)
        if not path.is_absolute() and ".." not in path.parts:
            if (folder / path).is_file():
                return folder / path
        if (folder / path.name).is_file():
            return folder / path.name
    raise UserError(
        f"Expected the file that {setting} names in {folder}, found no "
        f"{name}; copy it there."
    )
