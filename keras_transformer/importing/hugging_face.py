"""Reads Marian models in Hugging Face's form, a folder like `opus-mt-en-de`.

    config.json, model.safetensors or pytorch_model.bin
    source.spm, target.spm, vocab.json, tokenizer_config.json

Positions are those of `MarianMTModel`, with rates 10000^(-2i/D), even if the
weights were trained with others; for Marian's own see `marian_npz`.

Axes: D model width, V pieces.
"""

import json
import pathlib
from typing import Any

import numpy as np

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.importing import marian_model
from keras_transformer.importing.imported import (
    Arrays,
    Imported,
    Names,
    column_order,
)
from keras_transformer.importing.settings import Settings, model_config
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
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
_NAMES = Names(
    layer="{stack}.layers.{i}.",
    endings=("weight", "bias", "weight", "bias"),
    parts={
        "attention": (
            *(f"self_attn.{part}.*" for part in _PROJECTIONS),
            "self_attn_layer_norm.*",
        ),
        "cross_attention": (
            *(f"encoder_attn.{part}.*" for part in _PROJECTIONS),
            "encoder_attn_layer_norm.*",
        ),
        "feed_forward": ("fc1.*", "fc2.*", "final_layer_norm.*"),
    },
    transposed=True,
)
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
# Names of the tied matrix, of which a file has one or several.
_TIED = (
    "shared.weight",
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


def read(folder: pathlib.Path) -> Imported:
    """Read a `MarianMTModel` and its `MarianTokenizer`."""
    settings = Settings(_read_json(folder / CONFIG), folder / CONFIG)
    ids = _read_json(folder / VOCABULARY)
    pieces = marian_model.vocabulary(ids, str(folder / VOCABULARY))
    model = _model_config(settings, len(pieces))
    path, reader = folder / SAFETENSORS, read_safetensors
    if not path.exists():
        path, reader = folder / PICKLE, read_pickle
    arrays = Arrays(
        {name.removeprefix("model."): x for name, x in reader(path).items()},
        path,
    )
    table = _tied(arrays)
    _check_positions(arrays)
    start = settings.values.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < len(table):
        settings.refuse(
            "decoder_start_token_id",
            f"one of the {len(table)} rows of the embedding",
        )
    weights = marian_model.embedding(
        table,
        arrays.take("final_logits_bias").reshape(-1),
        # Padding keeps its row: `MarianMTModel` counts it in its softmax.
        *(ids, pieces),
        table[start],
        model.positions,
    )
    weights |= arrays.layers(_NAMES, model.layers_of, model.positions)
    arrays.check_all_taken()
    tokenizer = marian_model.tokenizer(folder, pieces)
    return Imported(model, weights, tokenizer, *_languages(folder))


def _model_config(settings: Settings, vocab_size: int) -> ModelConfig:
    for name, value in _FIXED.items():
        settings.follow(name, [value], value)
    settings.follow("scale_embedding", [True])
    activation = settings.follow("activation_function", _ACTIVATIONS)
    return model_config(
        settings.what,
        encoder_layers=settings.number("encoder_layers"),
        decoder_layers=settings.number("decoder_layers"),
        d_model=settings.number("d_model"),
        num_heads=settings.number(
            "encoder_attention_heads", "decoder_attention_heads"
        ),
        vocab_size=vocab_size,
        ffn_dim=settings.number("encoder_ffn_dim", "decoder_ffn_dim"),
        dropout=settings.values.get("dropout", 0.1),
        activation=_ACTIVATIONS[activation],
        norm_epsilon=_EPSILON,
    )


def _tied(arrays: Arrays) -> np.ndarray:
    """Take the tied matrix; refuse a copy that differs from it."""
    first, *copies = [name for name in _TIED if name in arrays.left] or _TIED
    table = arrays.take(first)
    for name in copies:
        if not np.array_equal(arrays.take(name), table):
            raise UserError(
                f"The model cannot be imported exactly: its {name} differs "
                "from its other embeddings, expected one matrix for all."
            )
    return table


def _check_positions(arrays: Arrays) -> None:
    """Refuse positions other than sinusoids; old files hold their table."""
    for side in ("encoder", "decoder"):
        table = arrays.left.pop(f"{side}.embed_positions.weight", None)
        if table is None:
            continue
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
