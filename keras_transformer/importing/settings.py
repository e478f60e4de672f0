"""Refuses a foreign setting that our model cannot follow exactly."""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.config import UserError


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
    """Return the number that two settings must share.

    Raises:
        UserError: If they differ or are not numbers.
    """
    values = [settings.get(name) for name in (first, other)]
    if values[0] != values[1] or not isinstance(values[0], int):
        raise UserError(
            f"{what} cannot be imported exactly: its settings {first} and "
            f"{other} are {values[0]!r} and {values[1]!r}, expected one number "
            "for both."
        )
    return values[0]


def depths(
    settings: Mapping[str, Any], encoder: str, decoder: str, what: str
) -> dict[str, Any]:
    """Read the numbers of layers from two settings, by our names.

    Raises:
        UserError: If one is not a number of layers.
    """
    for name in (encoder, decoder):
        value = settings.get(name)
        if type(value) is not int or value < 1:
            raise UserError(
                f"{what} cannot be imported exactly: its setting {name} is "
                f"{value!r}, expected a number of layers."
            )
    return stack_depths(settings[encoder], settings[decoder])


def stack_depths(encoder: int, decoder: int) -> dict[str, Any]:
    """Name the numbers of layers as `ModelConfig` does: one, if they agree."""
    if encoder == decoder:
        return {"num_layers": encoder}
    return {"encoder_layers": encoder, "decoder_layers": decoder}


def check_heads(num_heads: int, d_model: int, what: str) -> None:
    """Refuse heads that do not divide the width of the model.

    Raises:
        UserError: If they do not.
    """
    if num_heads < 1 or d_model % num_heads:
        raise UserError(
            f"{what} cannot be of a Transformer: it has {num_heads} heads, "
            f"which do not divide its width {d_model}; give the file that came "
            "with the weights."
        )
