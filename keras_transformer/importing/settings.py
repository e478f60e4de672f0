"""Turns foreign settings into ours, and refuses what we cannot follow."""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.config import ModelConfig, SettingError, UserError


def require(
    settings: Mapping[str, Any],
    name: str,
    allowed: Iterable[Any],
    what: str,
    default: Any = None,
) -> Any:
    """Return a setting's value, which must be one that we can follow.

    Args:
        settings: All settings.
        name: The setting's name.
        allowed: Values that change nothing, or that we can follow.
        what: The file or model, for the error.
        default: The value if it is not given.

    Raises:
        UserError: If it has another value; it names the setting.
    """
    value = settings.get(name, default)
    if value not in list(allowed):
        wanted = " or ".join(repr(each) for each in allowed)
        raise UserError(
            f"{what} cannot be imported exactly: its setting {name} is "
            f"{value!r}, expected {wanted}."
        )
    return value


def same(settings: Mapping[str, Any], first: str, other: str, what: str) -> int:
    """Return the number that two settings must share; refuse anything else."""
    values = [settings.get(name) for name in (first, other)]
    if values[0] != values[1] or not isinstance(values[0], int):
        raise UserError(
            f"{what} cannot be imported exactly: its settings {first} and "
            f"{other} are {values[0]!r} and {values[1]!r}, expected one number "
            "for both."
        )
    return values[0]


def depth(settings: Mapping[str, Any], name: str, what: str) -> int:
    """Return a setting that must be a number of layers."""
    value = settings.get(name)
    if type(value) is not int or value < 1:
        raise UserError(
            f"{what} cannot be imported exactly: its setting {name} is "
            f"{value!r}, expected a number of layers."
        )
    return value


def model_config(
    what: str,
    encoder_layers: int,
    decoder_layers: int,
    d_model: int,
    num_heads: int,
    **others: Any,
) -> ModelConfig:
    """Make the configuration of a model whose linear parts all have biases.

    Args:
        what: The file or model, for the error.
        encoder_layers: Number of layers of the encoder.
        decoder_layers: Number of layers of the decoder, equal or not.
        d_model: As in `ModelConfig`, and `others` too.
        num_heads: Must divide the width.
        **others: The other settings.

    Raises:
        UserError: If a value is out of range; it names the file.
    """
    if num_heads < 1 or d_model % num_heads:
        raise UserError(
            f"{what} cannot be of a Transformer: it has {num_heads} heads, "
            f"which do not divide its width {d_model}; give the file that came "
            "with the weights."
        )
    depths: dict[str, Any] = {"num_layers": encoder_layers}
    if encoder_layers != decoder_layers:
        depths = {
            "encoder_layers": encoder_layers,
            "decoder_layers": decoder_layers,
        }
    try:
        return ModelConfig(
            **depths,
            d_model=d_model,
            num_heads=num_heads,
            attention_bias=True,
            logits_bias=True,
            **others,
        )
    except SettingError as error:
        raise UserError(
            f"{what} cannot be imported: expected its {error.setting} to be "
            f"{error.expected}, received {error.received!r:.60}; correct the "
            "file."
        ) from None
