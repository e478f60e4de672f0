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
    """The value of a setting, which must be one of those that we can follow.

    Args:
        settings: All of them.
        name: Of the setting.
        allowed: Values that change nothing, or that we can follow.
        what: The file or model, for the error.
        default: What it is where it is not said.

    Raises:
        UserError: If it is another; it names the setting.
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
    """The number that two settings share, since ours has one for both sides.

    Raises:
        UserError: If they differ or are no numbers.
    """
    values = [settings.get(name) for name in (first, other)]
    if values[0] != values[1] or not isinstance(values[0], int):
        raise UserError(
            f"{what} cannot be imported exactly: its settings {first} and "
            f"{other} are {values[0]!r} and {values[1]!r}, expected one number "
            "for both."
        )
    return values[0]


def check_heads(num_heads: int, d_model: int, what: str) -> None:
    """Refuse heads that do not divide the width of the model.

    Raises:
        UserError: If so.
    """
    if num_heads < 1 or d_model % num_heads:
        raise UserError(
            f"{what} cannot be of a Transformer: it has {num_heads} heads, "
            f"which do not divide its width {d_model}; give the file that came "
            "with the weights."
        )
