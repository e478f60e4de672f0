"""Writes a model for CTranslate2, which translates fast on CPUs.

The folder holds the vocabulary and its sentencepiece models too.
`docs/guides/precision.md` shows how to use it, and how that search differs from
ours.

Axes: H heads, K key width, U value width, D model width.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from keras import ops

from keras_transformer.config import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    ModelConfig,
    SettingError,
    UserError,
)
from keras_transformer.data.paired_tokenizer import PairedTokenizer
from keras_transformer.data.tokenizer import Tokenizer
from keras_transformer.layers import PositionalEncoding
from keras_transformer.machine import extras, files
from keras_transformer.model import Transformer
from keras_transformer.runs.layout import TOKENIZER_FILE
from keras_transformer.translation.translator import Translator

Weights: TypeAlias = Mapping[str, np.ndarray]
PRECISIONS = ("float32", "int8")
# CTranslate2 looks positions up; past the table's end it refuses the text.
POSITIONS = 2_048
# Keras's names, and CTranslate2's.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "silu": "SWISH",
    "swish": "SWISH",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
}
# Their attentions and ours.
_OF_ENCODER = {"self_attention": "attention"}
_OF_DECODER = {
    "self_attention": "self_attention",
    "attention": "cross_attention",
}
# A bias of logits so low that a piece is never written, even in float16.
_NEVER = -1e4


def check(output: str | os.PathLike, precision: str) -> pathlib.Path:
    """Refuse what cannot succeed, before anything is loaded."""
    if precision not in PRECISIONS:
        expected = f"one of {', '.join(PRECISIONS)}"
        raise SettingError("precision", expected, precision)
    extras.needs("ctranslate2.specs", "ctranslate2")
    if os.path.lexists(output):
        raise UserError(
            f"{output} exists already and is left as it is; choose another "
            "folder or remove it."
        )
    return pathlib.Path(output)


def export(
    translator: Translator,
    output: str | os.PathLike,
    precision: str = "float32",
) -> pathlib.Path:
    """Write a CTranslate2 model, whole or not at all.

    Args:
        translator: What to export. Every preset works; heads whose keys and
            values differ in width are padded with zeros to the wider. Models
            with restricted self-attention or an activation that CTranslate2
            lacks do not.
        output: Folder of the model; must not exist.
        precision: How the weights are stored: `"float32"` or `"int8"` (a
            quarter; a CPU multiplies in int8). CTranslate2 turns them into
            other types, such as float16 on a GPU, as it loads them.

    Returns:
        The path of the folder.
    """
    output = check(output, precision)
    model, tokenizer = translator.id_model.model, translator.tokenizer
    if lacking := _lacking(model, tokenizer):
        raise UserError(f"CTranslate2 has no {lacking}; export a SavedModel.")
    spec = _spec(model, tokenizer)
    spec.validate()
    spec.optimize(quantization=precision)
    vocabulary = {TOKENIZER_FILE: tokenizer.spm}
    if isinstance(tokenizer, PairedTokenizer):
        of_target = tokenizer.target.spm
        vocabulary = {"source.spm": tokenizer.spm, "target.spm": of_target}
    output.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(output) as partial:
        partial.mkdir()
        spec.save(str(partial))
        for name, content in vocabulary.items():
            (partial / name).write_bytes(content)
    return output


def _lacking(model: Any, tokenizer: Any) -> str | None:
    """Name what the model has and CTranslate2 lacks."""
    if type(model) is not Transformer or not isinstance(tokenizer, Tokenizer):
        return f"{type(model).__name__} with {type(tokenizer).__name__}"
    config = model.model_config
    if config.restriction is not None:
        return f"restricted self-attention, here {config.restriction}"
    if config.activation not in _ACTIVATIONS:
        return f"activation {config.activation}"
    return None


def _spec(model: Transformer, tokenizer: Tokenizer) -> Any:
    """Collect the weights by CTranslate2's names, in its `TransformerSpec`."""
    from ctranslate2 import specs

    config = model.model_config
    shape = dict(
        num_heads=config.num_heads,
        pre_norm=config.norm_first,
        activation=specs.Activation[_ACTIVATIONS[str(config.activation)]],
        head_dim=max(config.key_dim, config.value_dim),
    )
    kinds = specs.transformer_spec
    spec = specs.TransformerSpec(
        kinds.TransformerEncoderSpec(config.layers_of("encoder"), **shape),
        kinds.TransformerDecoderSpec(config.layers_of("decoder"), **shape),
    )
    # Copies, since quantisation works in place; by name without the model's.
    names = [variable.path.partition("/")[2] for variable in model.weights]
    copies = [np.array(x, "float32") for x in model.get_weights()]
    weights = dict(zip(names, copies, strict=True))
    table = weights["embedding/table"]
    of_source, of_target = (
        weights.get(f"{side}_embedding/table", table)
        for side in ("source", "target")
    )
    spec.encoder.embeddings[0].weight = of_source
    spec.decoder.embeddings.weight = of_target
    spec.decoder.projection.weight = table
    if config.logits_bias:
        bias = weights["embedding/bias"]
        bias[[PAD_ID, BOS_ID]] = _NEVER
        spec.decoder.projection.bias = bias
    for stack, positions, attentions in (
        ("encoder", model.source_positions, _OF_ENCODER),
        ("decoder", model.target_positions, _OF_DECODER),
    ):
        of_stack = getattr(spec, stack)
        of_stack.position_encodings.encodings = _positions(positions)
        for i, layer in enumerate(of_stack.layer):
            name = f"{stack}/layer_{i}"
            for theirs, ours in attentions.items():
                to = getattr(layer, theirs)
                _set_attention(to, weights, f"{name}/{ours}", config)
            _set_feed_forward(layer.ffn, weights, f"{name}/feed_forward")
        if config.norm_first:
            _set_norm(of_stack.layer_norm, weights, f"{stack}/norm")

    pieces = tokenizer.pieces(range(model.vocab_size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[UNK_ID]
    spec.config.bos_token = pieces[BOS_ID]
    spec.config.eos_token = pieces[EOS_ID]
    spec.config.decoder_start_token = pieces[BOS_ID]
    spec.config.add_source_eos = config.source_end
    spec.config.layer_norm_epsilon = config.norm_epsilon
    return spec


def _set_attention(
    to: Any, weights: Weights, name: str, config: ModelConfig
) -> None:
    """Set the weights; those that read the same vectors are one matrix."""
    query, key, value = (
        _filled(weights[f"{name}/{part}"], config)
        for part in ("query", "key", "value")
    )
    if len(to.linear) == 2:  # Of self-attention.
        to.linear[0].weight = np.concatenate([query, key, value])
    else:
        to.linear[0].weight = query
        to.linear[1].weight = np.concatenate([key, value])
    to.linear[-1].weight = _filled(weights[f"{name}/output"].T, config).T
    if config.attention_bias:
        # Keys and values have no bias.
        for linear in to.linear[:-1]:
            linear.bias = np.zeros(len(linear.weight), "float32")
        bias = _filled(weights[f"{name}/query_bias"].reshape(1, -1), config)
        to.linear[0].bias[: len(bias)] = bias[:, 0]
        to.linear[-1].bias = weights[f"{name}/output_bias"]
    # By the width of the keys, not that of the padded heads.
    to.queries_scale = np.float32(config.key_dim**-0.5)
    _set_norm(to.layer_norm, weights, f"{name}_norm")


def _filled(kernel: np.ndarray, config: ModelConfig) -> np.ndarray:
    """Turn `(D, H * K)` or `(D, H * U)` into `(H * width, D)`."""
    # Zeros add nothing to a product.
    width = max(config.key_dim, config.value_dim)
    heads = kernel.reshape(len(kernel), config.num_heads, -1)
    heads = np.pad(heads, [(0, 0), (0, 0), (0, width - heads.shape[2])])
    return heads.reshape(len(kernel), -1).T


def _set_feed_forward(to: Any, weights: Weights, name: str) -> None:
    for linear, part in ((to.linear_0, "widen"), (to.linear_1, "narrow")):
        linear.weight = weights[f"{name}/{part}/kernel"].T
        linear.bias = weights[f"{name}/{part}/bias"]
    _set_norm(to.layer_norm, weights, f"{name}_norm")


def _set_norm(to: Any, weights: Weights, name: str) -> None:
    to.gamma = weights[f"{name}/gamma"]
    to.beta = weights[f"{name}/beta"]


def _positions(layer: PositionalEncoding) -> np.ndarray:
    """Return the table of a `PositionalEncoding`, at least `(POSITIONS, D)`."""
    rows = max(POSITIONS, layer.max_positions)
    zeros = np.zeros([1, rows, layer.d_model], "float32")
    return ops.convert_to_numpy(layer(zeros))[0].astype("float32")
