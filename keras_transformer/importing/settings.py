"""Turns foreign settings into ours, and refuses what we cannot follow."""

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from keras_transformer.config import ModelConfig, SettingError, UserError


class Settings:
    """The settings in a file of a model from elsewhere, `what`."""

    def __init__(self, values: Mapping[str, Any], what: object) -> None:
        self.values = values
        self.what = what

    def follow(
        self, name: str, allowed: Collection[Any], default: Any = None
    ) -> Any:
        """Return a setting's value, which must be one that we can follow."""
        value = self.values.get(name, default)
        if value not in list(allowed):
            self.refuse(name, " or ".join(map(repr, allowed)))
        return value

    def number(self, name: str, *others: str) -> int:
        """Return the number above 0 that one or several settings have."""
        value = self.values.get(name)
        if type(value) is not int or value < 1:
            self.refuse(name, "a whole number above 0")
        for other in others:
            self.follow(other, [value])
        return value

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Refuse the model, because a setting is not as expected."""
        raise UserError(
            f"{self.what} cannot be imported exactly: its setting {name} is "
            f"{self.values.get(name)!r}, expected {expected}."
        )


def model_config(
    what: object,
    *,
    encoder_layers: int,
    decoder_layers: int,
    d_model: int,
    num_heads: int,
    **others: Any,
) -> ModelConfig:
    """Make the configuration of a model whose linear parts all have biases.

    Raises:
        UserError: If a value is out of range; it names the file `what`.
    """
    if num_heads < 1 or d_model % num_heads:
        raise UserError(
            f"{what} cannot be of a Transformer: it has {num_heads} heads, "
            f"which do not divide its width {d_model}; give the file that came "
            "with the weights."
        )
    if encoder_layers == decoder_layers:
        others["num_layers"] = encoder_layers
    else:
        others["encoder_layers"] = encoder_layers
        others["decoder_layers"] = decoder_layers
    try:
        return ModelConfig(
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
