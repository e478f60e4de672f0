"""The presets: every row of table 3, with its parameters, and a few beyond."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_transformer.config import (
    ModelConfig,
    Search,
    SettingError,
    TrainingConfig,
)


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named shape, its recipe and its search."""

    model: ModelConfig
    training: TrainingConfig
    search: Search = Search()


def _row(training: Mapping[str, Any] | None = None, **model: Any) -> Preset:
    """Make a row of table 3; settings not given are those of `base`."""
    return Preset(ModelConfig(**model), TrainingConfig(**(training or {})))


_BIG = dict(d_model=1024, ffn_dim=4096, num_heads=16)
_BIG_TRAINING = dict(steps=300_000, average=20, keep_checkpoints=20)


def _parsing(vocab_size: int) -> Preset:
    """Make a parser of section 6.3; settings not given are those of `base`."""
    row = _row(
        dict(max_length=600), vocab_size=vocab_size, num_layers=4, d_model=1024
    )
    search = Search(beam_size=21, length_penalty=0.3, max_extra_length=300)
    return dataclasses.replace(row, search=search)


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "base": _row(),
        "A-h1": _row(num_heads=1),
        "A-h4": _row(num_heads=4),
        "A-h16": _row(num_heads=16),
        "A-h32": _row(num_heads=32),
        "B-dk16": _row(key_dim=16),
        "B-dk32": _row(key_dim=32),
        "C-N2": _row(num_layers=2),
        "C-N4": _row(num_layers=4),
        "C-N8": _row(num_layers=8),
        "C-d256": _row(d_model=256),
        "C-d1024": _row(d_model=1024),
        "C-ff1024": _row(ffn_dim=1024),
        "C-ff4096": _row(ffn_dim=4096),
        "D-drop0.0": _row(dropout=0.0),
        "D-drop0.2": _row(dropout=0.2),
        "D-ls0.0": _row({"label_smoothing": 0.0}),
        "D-ls0.2": _row({"label_smoothing": 0.2}),
        "E-learned": _row(positions="learned"),
        "big": _row(_BIG_TRAINING, dropout=0.3, **_BIG),
        # Beyond table 3.
        "big-en-fr": _row(_BIG_TRAINING, vocab_size=32_000, **_BIG),
        # A deep encoder and a shallow decoder: a text is read once and written
        # token by token.
        "base-6-2": _row(decoder_layers=2),
        "base-12-1": _row(num_layers=12, decoder_layers=1),
        # Section 6.3: trees of the Wall Street Journal alone, and of more. The
        # paper does not give the heads' widths: here they grow with d_model, as
        # in row C. Nor does it give steps and dropout: they are base's, for you
        # to choose on section 22. Every sentence of up to 300 tokens is kept.
        "parsing": _parsing(16_000),
        "parsing-semi": _parsing(32_000),
        # The shape of Wu et al. 2021 for Multi30k.
        "tiny": _row(
            dict(
                steps=10_000,
                batch_tokens=4_096,
                warmup_steps=800,
                learning_rate_scale=0.7,
                checkpoint_every="2m",
                validation_steps=500,
            ),
            vocab_size=8_000,
            num_layers=4,
            d_model=128,
            num_heads=4,
            ffn_dim=256,
            dropout=0.3,
        ),
        # Learns the built-in corpus in minutes on two CPU cores. Rules write
        # that corpus, so dropout gains nothing.
        "demo": _row(
            dict(
                steps=3_000,
                batch_tokens=2_048,
                warmup_steps=400,
                learning_rate_scale=0.5,
                checkpoint_every="100",
                validation_steps=250,
                target_bleu=99.5,
            ),
            vocab_size=1_000,
            num_layers=2,
            d_model=128,
            num_heads=4,
            ffn_dim=256,
            dropout=0.0,
        ),
    }
)


def preset_of(name: str) -> Preset:
    """Look a preset up, or refuse its name."""
    if name not in PRESETS:
        raise SettingError("preset", f"one of {', '.join(PRESETS)}", name)
    return PRESETS[name]


def parameters(model: ModelConfig) -> int:
    """Count the trainable numbers of a model without building it (section 3).

    The attention's projections and the logits have a bias, and the stacks a
    last norm, only if the model asks for them.
    """
    width, norm = model.d_model, 2 * model.d_model
    attention = 2 * width * model.num_heads * (model.key_dim + model.value_dim)
    if model.attention_bias:
        attention += model.num_heads * model.key_dim + width
    layer = 2 * width * model.ffn_dim + model.ffn_dim + width  # Equation 2.
    layer += attention + 2 * norm
    rows = (1 if model.tied_embeddings else 3) * model.vocab_size
    if model.positions == "learned":  # A table for each side.
        rows += 2 * model.max_positions
    return (
        rows * width
        + model.vocab_size * model.logits_bias
        + 2 * norm * model.norm_first
        + model.layers_of("encoder") * layer
        + model.layers_of("decoder") * (layer + attention + norm)
    )
