"""Which settings of a run make sense, and what to say of those that do not."""

import math

from keras_transformer.config import (
    PRECISIONS,
    ModelConfig,
    SearchConfig,
    TrainingConfig,
    UserError,
)

POSITIONS = ("sinusoidal", "learned", "tensor2tensor")
# Beyond any text, and far enough from what 32 bits hold.
MOST_TOKENS = 1_000_000
ACTIVATIONS = ("relu", "swish")
_POSITIVE = (
    "steps",
    "batch_tokens",
    "max_length",
    "warmup_steps",
    "learning_rate_scale",
    "average",
    "checkpoint_minutes",
    "checkpoint_steps",
    "keep_checkpoints",
    "validation_steps",
)
_SIZES = (
    "num_layers",
    "d_model",
    "num_heads",
    "key_dim",
    "value_dim",
    "ffn_dim",
    "max_positions",
    "norm_epsilon",
)


def check_sides(
    languages: tuple[str, str], train_split: str, validation_split: str
) -> None:
    """Refuse one language for both sides, and one split for both uses.

    Raises:
        UserError: If they are alike.
    """
    if languages[0] == languages[1]:
        raise UserError(
            f"Expected two languages, received {languages[0]} for both sides; "
            "change --source-lang or --target-lang."
        )
    if train_split == validation_split:
        raise UserError(
            f"Expected two splits, received {train_split} for training and "
            "validation; change --train-split or --validation-split."
        )


def check_settings(model: ModelConfig, training: TrainingConfig) -> None:
    """Refuse numbers that make no sense.

    Raises:
        UserError: For the first of them, by the name of its flag.
    """
    for name, value, good, wanted in (
        ("dropout", model.dropout, 0 <= model.dropout < 1, "in [0, 1)"),
        (
            "d-model",
            model.d_model,
            model.d_model % 2 == 0,
            "even, since sines and cosines come in pairs",
        ),
        (
            "positions",
            model.positions,
            model.positions in POSITIONS,
            f"one of {', '.join(POSITIONS)}",
        ),
        (
            "restrict",
            model.restriction,
            model.restriction is None or 0 < model.restriction < MOST_TOKENS,
            f"above 0 and below {MOST_TOKENS:,}",
        ),
        (
            "first-position",
            model.first_position,
            model.first_position >= 0,
            "of at least 0",
        ),
        (
            "activation",
            model.activation,
            model.activation in ACTIVATIONS,
            f"one of {', '.join(ACTIVATIONS)}",
        ),
        (
            "label-smoothing",
            training.label_smoothing,
            0 <= training.label_smoothing < 1,
            "in [0, 1)",
        ),
        (
            "bpe-dropout",
            training.bpe_dropout,
            0 <= training.bpe_dropout < 1,
            "in [0, 1)",
        ),
        (
            "ema",
            training.ema,
            training.ema is None or 0 < training.ema < 1,
            "in (0, 1)",
        ),
        (
            "length-growth",
            training.length_growth,
            training.length_growth is None or 1 < training.length_growth <= 2,
            "in (1, 2]",
        ),
        ("seed", training.seed, 0 <= training.seed < 2**32, "in [0, 2^32)"),
        (
            "precision",
            training.precision,
            training.precision in PRECISIONS,
            f"one of {', '.join(PRECISIONS)}",
        ),
    ):
        if not good:
            raise UserError(f"Expected --{name} {wanted}, received {value}.")
    _check_positive(model, training)
    if training.keep_checkpoints < training.average:
        raise UserError(
            f"Expected --keep-checkpoints of at least {training.average}, the "
            f"--average at the end, received {training.keep_checkpoints}."
        )


def check_search(search: SearchConfig) -> None:
    """Refuse a search that makes no sense.

    Raises:
        UserError: For the first wrong number, by the name of its flag.
    """
    for name, value, good, wanted in (
        ("beam-size", search.beam_size, search.beam_size >= 1, "at least 1"),
        (
            "length-penalty",
            search.length_penalty,
            0 <= search.length_penalty < math.inf,
            "at least 0 and finite",
        ),
        (
            "max-extra-length",
            search.max_extra_length,
            0 <= search.max_extra_length < MOST_TOKENS,
            f"at least 0 and below {MOST_TOKENS:,}",
        ),
    ):
        if not good:
            raise UserError(f"Expected --{name} {wanted}, received {value}.")


def _check_positive(model: ModelConfig, training: TrainingConfig) -> None:
    for name in (*_SIZES, *_POSITIVE):
        value = getattr(model if name in _SIZES else training, name)
        if value is not None and not value > 0:
            raise UserError(
                f"Expected --{name.replace('_', '-')} above 0, received "
                f"{value}."
            )
