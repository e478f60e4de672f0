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
from keras_transformer.importing import marian_model
from keras_transformer.importing.imported import (
    Imported,
    Linear,
    Norm,
    Sublayer,
    column_order,
    layer_weights,
)
from keras_transformer.importing.marian_model import Arrays
from keras_transformer.importing.settings import (
    depth,
    model_config,
    require,
    same,
)
from keras_transformer.importing.source_files import (
    is_language,
    languages,
    read_bytes,
)
from keras_transformer.importing.tensor_files import (
    read_pickle,
    read_safetensors,
)
from keras_transformer.layers import positional_encoding

CONFIG, VOCABULARY = "config.json", "vocab.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
_TOKENIZER_CONFIG = "tokenizer_config.json"
# Their names of our sub-layers, and of projections.
_ATTENTIONS = {
    "attention": "self_attn",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
}
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
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


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
    weights = _weights(tensors, settings, model, ids, pieces)
    tensors.check_all_taken()
    return Imported(
        dataclasses.replace(model, vocab_size=len(pieces)),
        weights,
        marian_model.tokenizer(folder, pieces),
        *_languages(folder),
    )


def _model_config(settings: dict[str, Any], what: str) -> ModelConfig:
    for name, value in _FIXED.items():
        require(settings, name, [value], what, value)
    require(settings, "scale_embedding", [True], what, False)
    activation = require(
        settings, "activation_function", _ACTIVATIONS, what, "gelu"
    )
    return model_config(
        what,
        encoder_layers=depth(settings, "encoder_layers", what),
        decoder_layers=depth(settings, "decoder_layers", what),
        d_model=same(settings, "d_model", "d_model", what),
        num_heads=same(
            settings, "encoder_attention_heads", "decoder_attention_heads", what
        ),
        vocab_size=same(settings, "vocab_size", "vocab_size", what),
        ffn_dim=same(settings, "encoder_ffn_dim", "decoder_ffn_dim", what),
        dropout=settings.get("dropout", 0.1),
        activation=_ACTIVATIONS[activation],
        norm_epsilon=_EPSILON,
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
    start = settings.get("decoder_start_token_id")
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

    def sublayer(stack: str, i: int, kind: str) -> Sublayer:
        path = f"{stack}.layers.{i}"
        if kind == "feed_forward":
            linears, norm = [f"{path}.fc1", f"{path}.fc2"], "final_layer_norm"
        else:
            theirs = _ATTENTIONS[kind]
            linears = [f"{path}.{theirs}.{name}" for name in _PROJECTIONS]
            norm = f"{theirs}_layer_norm"
        return Sublayer(
            [
                Linear(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"])
                for name in linears
            ],
            Norm(
                tensors[f"{path}.{norm}.weight"],
                tensors[f"{path}.{norm}.bias"],
            ),
        )

    return found | layer_weights(model.layers_of, model.positions, sublayer)


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
        order = column_order("sinusoidal", width)
        ours = np.asarray(positional_encoding(length, width))
        if not np.allclose(table[:, order], ours, atol=1e-4):
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
