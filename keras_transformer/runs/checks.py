"""Which settings of a run make sense, and what to say of those that do not."""

import math
from collections.abc import Callable
from typing import Any

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
# What settings are on the command line, where that is not their name.
_FLAGS = {"restriction": "--restrict"}
_WITHOUT_FLAG = (
    "activation",
    "first_position",
    "max_positions",
    "norm_epsilon",
)

# Whether a value makes sense, and which do.
_Rule = tuple[Callable[[Any], bool], str]


def _one_of(names: tuple[str, ...]) -> _Rule:
    return lambda name: name in names, f"one of {', '.join(names)}"


_ABOVE_0: _Rule = (lambda x: x > 0, "above 0")
_NOT_BELOW_0: _Rule = (lambda x: x >= 0, "of at least 0")
_SHARE: _Rule = (lambda x: 0 <= x < 1, "in [0, 1)")
_FACTOR: _Rule = (lambda x: 0 < x < 1, "in (0, 1)")
_GROWTH: _Rule = (lambda x: 1 < x <= 2, "in (1, 2]")
_SEED: _Rule = (lambda x: 0 <= x < 2**32, "in [0, 2^32)")
_EVEN: _Rule = (
    lambda x: x % 2 == 0,
    "even, since sines and cosines come in pairs",
)
_REACH: _Rule = (
    lambda x: 0 < x < MOST_TOKENS,
    f"above 0 and below {MOST_TOKENS:,}",
)
_EXTRA_LENGTH: _Rule = (
    lambda x: 0 <= x < MOST_TOKENS,
    f"at least 0 and below {MOST_TOKENS:,}",
)
_ALPHA: _Rule = (lambda x: 0 <= x < math.inf, "at least 0 and finite")
_BEAMS: _Rule = (lambda x: x >= 1, "at least 1")

# The rules in order, and the settings that each is for.
_Table = tuple[tuple[_Rule, tuple[str, ...]], ...]

_OF_MODEL: _Table = (
    (_SHARE, ("dropout",)),
    (_EVEN, ("d_model",)),
    (_one_of(POSITIONS), ("positions",)),
    (_REACH, ("restriction",)),
    (_NOT_BELOW_0, ("first_position",)),
    (_one_of(ACTIVATIONS), ("activation",)),
    (_ABOVE_0, ("num_layers", "d_model", "num_heads", "key_dim", "value_dim")),
    (_ABOVE_0, ("ffn_dim", "max_positions", "norm_epsilon")),
)
_OF_TRAINING: _Table = (
    (_SHARE, ("label_smoothing", "bpe_dropout")),
    (_FACTOR, ("ema",)),
    (_GROWTH, ("length_growth",)),
    (_SEED, ("seed",)),
    (_one_of(PRECISIONS), ("precision",)),
    (_ABOVE_0, ("steps", "batch_tokens", "max_length", "warmup_steps")),
    (_ABOVE_0, ("learning_rate_scale", "average", "checkpoint_minutes")),
    (_ABOVE_0, ("checkpoint_steps", "keep_checkpoints", "validation_steps")),
)
_OF_SEARCH: _Table = (
    (_BEAMS, ("beam_size",)),
    (_ALPHA, ("length_penalty",)),
    (_EXTRA_LENGTH, ("max_extra_length",)),
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
    _check(model, _OF_MODEL)
    _check(training, _OF_TRAINING)
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
    _check(search, _OF_SEARCH)


def _check(
    settings: ModelConfig | TrainingConfig | SearchConfig, table: _Table
) -> None:
    """Refuse the first setting that its rule does not allow."""
    for (makes_sense, wanted), names in table:
        for name in names:
            value = getattr(settings, name)
            # None: not asked for.
            if value is not None and not makes_sense(value):
                raise UserError(
                    f"Expected {_called(name)} {wanted}, received {value}."
                )


def _called(name: str) -> str:
    """What the user calls a setting: its flag, if there is one."""
    if name in _WITHOUT_FLAG:
        return f"`{name}`"
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")
