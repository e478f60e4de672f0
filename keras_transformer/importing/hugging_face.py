"""Reads Marian models in Hugging Face's form, a folder like `opus-mt-en-de`.

    config.json, model.safetensors or pytorch_model.bin
    source.spm, target.spm, vocab.json, tokenizer_config.json

Positions are those of `MarianMTModel`, with rates 10000^(-2i/D), even if the
weights were trained with others; for Marian's own see `marian_npz`.

Axes: D model width, V pieces.
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import marian_model
from keras_transformer.importing.imported import Imported, interleaved
from keras_transformer.importing.marian_model import (
    Arrays,
    Linear,
    Norm,
    Sublayer,
)
from keras_transformer.importing.settings import (
    check_heads,
    depths,
    require,
    same,
)
from keras_transformer.importing.source_files import (
    is_language,
    languages,
    read_bytes,
    read_sentencepiece,
)
from keras_transformer.importing.tensor_files import (
    read_pickle,
    read_safetensors,
)
from keras_transformer.layers import positional_encoding

CONFIG, VOCABULARY = "config.json", "vocab.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
# Names of the tied matrix, besides the first.
_COPIES = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)
# The epsilon of `torch.nn.LayerNorm`, which no setting changes.
_EPSILON = 1e-5
# Settings of old files, with the only value that they have.
_FIXED = {
    "model_type": "marian",
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
_MISSING = {"normalize_before": False, "normalize_embedding": False}
_MISSING |= {"add_final_layer_norm": False, "scale_embedding": False}


def is_here(folder: pathlib.Path) -> bool:
    """Return whether the folder has Hugging Face's form."""
    return (folder / CONFIG).exists() and any(
        (folder / name).exists() for name in (SAFETENSORS, PICKLE)
    )


def read(folder: pathlib.Path) -> Imported:
    """Read a `MarianMTModel` and its `MarianTokenizer`.

    Raises:
        UserError: If a file is missing or damaged, or the model cannot be
            taken over exactly; it names the setting.
    """
    settings = _read_json(folder / CONFIG)
    model = _model_config(settings, str(folder / CONFIG))
    ids = _read_json(folder / VOCABULARY)
    pieces = marian_model.vocabulary(ids, str(folder / VOCABULARY))
    tensors = _tensors(folder)
    try:
        weights = _weights(tensors, settings, model, ids, pieces)
        tensors.check_all_taken()
    except KeyError as error:
        raise UserError(
            f"Expected the weights of a MarianMTModel in {folder}, found no "
            f"{error.args[0]}; download them again."
        ) from None
    source = read_sentencepiece(folder / "source.spm")
    target = read_sentencepiece(folder / "target.spm")
    return Imported(
        dataclasses.replace(model, vocab_size=len(pieces)),
        weights,
        PairedTokenizer(pack(source, target, pieces)),
        *_languages(folder),
    )


def _model_config(settings: dict[str, Any], what: str) -> ModelConfig:
    for name, value in _FIXED.items():
        require(settings, name, [value], what, _MISSING.get(name, value))
    activation = require(
        settings, "activation_function", _ACTIVATIONS, what, "gelu"
    )
    d_model = same(settings, "d_model", "d_model", what)
    heads = same(
        settings, "encoder_attention_heads", "decoder_attention_heads", what
    )
    check_heads(heads, d_model, what)
    ffn_dim = same(settings, "encoder_ffn_dim", "decoder_ffn_dim", what)
    return ModelConfig(
        vocab_size=same(settings, "vocab_size", "vocab_size", what),
        **depths(settings, "encoder_layers", "decoder_layers", what),
        d_model=d_model,
        num_heads=heads,
        key_dim=d_model // heads,
        value_dim=d_model // heads,
        ffn_dim=ffn_dim,
        dropout=float(settings.get("dropout", 0.1)),
        activation=_ACTIVATIONS[activation],
        norm_epsilon=_EPSILON,
        attention_bias=True,
        logits_bias=True,
    )


def _tensors(folder: pathlib.Path) -> Arrays:
    path = folder / SAFETENSORS
    if path.exists():
        found = read_safetensors(path)
    else:
        path = folder / PICKLE
        found = read_pickle(path)
    return Arrays(
        {name.removeprefix("model."): a for name, a in found.items()},
        str(path),
    )


def _weights(
    tensors: Arrays,
    settings: dict[str, Any],
    model: ModelConfig,
    ids: dict[str, int],
    pieces: list[str],
) -> dict[str, np.ndarray]:
    name = "shared.weight"
    if name not in tensors:  # One of the names of the tied matrix is enough.
        name = "encoder.embed_tokens.weight"
    table = tensors[name]
    marian_model.check_rows(ids, table, VOCABULARY)
    start = settings["decoder_start_token_id"]
    if not isinstance(start, int) or not 0 <= start < len(table):
        raise UserError(
            "The model cannot be imported: its setting decoder_start_token_id "
            f"is {start!r}, expected one of the {len(table)} rows of its "
            "embedding; download config.json again."
        )
    _check_copies(tensors, table)
    _check_positions(tensors)
    found = marian_model.embedding(
        table,
        tensors["final_logits_bias"].reshape(-1),
        # Padding keeps its row: `MarianMTModel` counts it in its softmax.
        [ids.get(piece) for piece in pieces],
        table[start],
        model.positions,
    )

    def sublayer(path: str, linears: tuple[str, ...], norm: str) -> Sublayer:
        return Sublayer(
            [
                Linear(
                    tensors[f"{path}{linear}.weight"].T,
                    tensors[f"{path}{linear}.bias"],
                )
                for linear in linears
            ],
            Norm(tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]),
        )

    for side, kinds in (
        ("encoder", {"attention": "self_attn"}),
        (
            "decoder",
            {"self_attention": "self_attn", "cross_attention": "encoder_attn"},
        ),
    ):
        for i in range(model.layers_of(side)):
            path = f"{side}.layers.{i}"
            found |= marian_model.layer(
                f"{side}/layer_{i}",
                {
                    ours: sublayer(
                        f"{path}.{theirs}.",
                        _PROJECTIONS,
                        f"{path}.{theirs}_layer_norm",
                    )
                    for ours, theirs in kinds.items()
                },
                sublayer(
                    f"{path}.", ("fc1", "fc2"), f"{path}.final_layer_norm"
                ),
                model.positions,
            )
    return found


def _check_copies(tensors: Arrays, table: np.ndarray) -> None:
    """Refuse a copy of the tied matrix that differs from it."""
    for name in _COPIES:
        if name in tensors and not np.array_equal(tensors[name], table):
            raise UserError(
                f"The model cannot be imported exactly: its {name} differs "
                "from its other embeddings, expected one matrix for all."
            )


def _check_positions(tensors: Arrays) -> None:
    """Refuse positions other than sinusoids; old files hold their table."""
    for side in ("encoder", "decoder"):
        name = f"{side}.embed_positions.weight"
        if name not in tensors:
            continue
        table = tensors[name]
        length, width = table.shape
        ours = np.asarray(positional_encoding(length, width))
        if not np.allclose(table[:, interleaved(width)], ours, atol=1e-4):
            raise UserError(
                "The model cannot be imported exactly: its "
                f"{side}.embed_positions are not sinusoids."
            )


def _languages(folder: pathlib.Path) -> tuple[str | None, str | None]:
    """Read both languages from the tokenizer, or else the folder's name."""
    path = folder / _TOKENIZER_CONFIG
    said = _read_json(path) if path.exists() else {}
    source, target = said.get("source_lang"), said.get("target_lang")
    if is_language(source) and is_language(target):
        return source, target
    return languages(folder)


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return dict(json.loads(read_bytes(path)))
    except (ValueError, TypeError, RecursionError):
        raise UserError(
            f"Expected an object of JSON in {path}, found something else; "
            "download it again."
        ) from None
