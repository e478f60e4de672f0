"""Settings, each declared once, and the errors that refuse them.

A setting is a field of a frozen dataclass, made by `setting`, which declares
its default, range, help and symbol. Checks, refusals, flags, signatures and
docstrings are made from the fields.
"""

import dataclasses
import difflib
import inspect
import numbers
import os
import pathlib
import re
import textwrap
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Target = TypeVar("Target")


class UserError(Exception):
    """An error caused by user input.

    The message is one sentence with the names of arguments in backticks. The
    command lines print it with flags in their place, on standard error, and
    exit with 2.
    """

    def _render_traceback_(self) -> list[str]:
        """Give IPython the sentence alone to show, as a command line does."""
        return [f"{type(self).__name__}: {self}"]


class JobError(Exception):
    """The job started but cannot continue.

    The command lines print its message, one sentence, on standard error and
    exit with 1.
    """


class SettingError(UserError, ValueError):
    """Refuses the value of one setting.

    Args:
        setting: Its name. Like the two others, it is also an attribute.
        expected: Completes "Expected it to be …".
        received: The value.
    """

    def __init__(self, setting: str, expected: str, received: Any) -> None:
        # A table is shown in lines.
        shown = re.sub(r"\s*\n\s*", " ", repr(received))[:60]
        super().__init__(
            f"Expected `{setting}` to be {expected}, received {shown}."
        )
        self.setting = setting
        self.expected = expected
        self.received = received

    def __reduce__(self) -> tuple:
        return type(self), (self.setting, self.expected, self.received)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The details of a setting, besides its name, type and default.

    Attributes:
        help: A phrase without a full stop, for the flag's help and a line
            of a docstring.
        within: The interval of allowed numbers, such as `"[0, 1)"`. Whole
            numbers count something: they are at least 1 if it is not given.
        choices: All allowed values, where they are few.
        or_function: Whether a function may stand in for a choice; Keras saves
            it as a dictionary.
        symbol: The paper's name, such as `"d_k"`.
        flag: Whether command lines have a flag for it.
        metavar: What the flag's help calls the value.
        of_layers: Whether the layers of a model's stacks take it.
        instead_of: A setting that it excludes; the one given later counts.
        several: Says that it is a list, and of what; each item has a flag.
        or_object: Whether an object may stand in for it, which is checked
            where it is used.
        may_change: Whether a run that has begun may go on with another value:
            it affects how long it trains and what it keeps, not the result.
    """

    help: str
    within: str | None = None
    choices: tuple[str, ...] = ()
    or_function: bool = False
    symbol: str | None = None
    flag: bool = True
    metavar: str | None = None
    of_layers: bool = False
    instead_of: str | None = None
    several: str | None = None
    or_object: bool = False
    may_change: bool = False

    def described(self) -> str:
        """Return the help with the symbol, and the choices or the range."""
        symbol = f" ({self.symbol})" if self.symbol else ""
        allowed = f": {', '.join(self.choices)}" if self.choices else ""
        if self.within and not self.within.endswith("inf)"):
            allowed = f", in {self.within}"
        return f"{self.help}{symbol}{allowed}"


def setting(default: Any, help: str, **details: Any) -> Any:
    """Declare a field with its default and what `Setting` holds."""
    return dataclasses.field(
        default=default, metadata={"setting": Setting(help, **details)}
    )


def setting_of(field: dataclasses.Field) -> Setting:
    """Return what `setting` declared about a field."""
    return field.metadata["setting"]


def kind_of(field: dataclasses.Field) -> tuple[type, bool]:
    """Return the type of a setting's values, and whether None is allowed."""
    kinds = typing.get_args(field.type) or (field.type,)
    return kinds[0], field.default is None


def within_of(field: dataclasses.Field) -> str | None:
    """Return the interval of a setting's numbers."""
    is_count = kind_of(field)[0] is int
    return setting_of(field).within or ("[1, inf)" if is_count else None)


def check_settings(configuration: Any) -> None:
    """Check every setting of a configuration, and give it its field's type.

    Called by `__post_init__`, so that a configuration that exists makes sense.

    Raises:
        SettingError: If a value is of another type or out of range.
    """
    for field in dataclasses.fields(configuration):
        if "setting" in field.metadata:
            value = checked_value(field, getattr(configuration, field.name))
            object.__setattr__(configuration, field.name, value)


def checked_value(field: dataclasses.Field, value: Any) -> Any:
    """Convert the value of a setting to the type of its field.

    It accepts NumPy's numbers, and whole numbers written as floats.

    Raises:
        SettingError: If it is of another type or out of range.
    """
    kind, may_be_none = kind_of(field)
    if value is None and may_be_none:
        return None
    about = setting_of(field)
    if about.or_function and (callable(value) or isinstance(value, dict)):
        return value
    if about.or_object and _as(kind, value) is None:
        return value
    if about.several and not about.or_object:
        is_one = isinstance(value, str | os.PathLike) or not isinstance(
            value, Iterable
        )
        items = [None] if is_one else [_as(kind, item) for item in value]
        if None in items:
            raise SettingError(field.name, about.several, value)
        return tuple(items)
    converted = of_kind(field.name, kind, value)
    if about.choices and converted not in about.choices:
        expected = f"one of {', '.join(about.choices)}"
        raise SettingError(
            field.name, expected + nearest(converted, about.choices), value
        )
    within = within_of(field)
    if within and not _is_within(converted, within):
        raise SettingError(field.name, _in_words(within, kind), value)
    return _fitting(field.name, converted)


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    pathlib.Path: "a path",
}
# The first whole number that an int64 of TensorFlow cannot be.
TOO_LARGE = 2**63


def of_kind(name: str, kind: type, value: Any) -> Any:
    """Check the type of an argument, and convert it as a setting's value.

    Raises:
        SettingError: If it is of another type.
    """
    converted = _as(kind, value)
    if converted is None:
        expected = _KINDS.get(kind, f"a {kind.__name__}")
        raise SettingError(name, expected, value)
    return converted


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Check an argument that counts something.

    Raises:
        SettingError: If it is no whole number, or below `least`.
    """
    number = of_kind(name, int, value)
    if number < least:
        raise SettingError(name, f"at least {least}", value)
    return _fitting(name, number)


def _fitting(name: str, value: Any) -> Any:
    if isinstance(value, int) and value >= TOO_LARGE:
        raise SettingError(name, "below 2^63", value)
    return value


def _as(kind: type, value: Any) -> Any:
    """Convert `value` to `kind`; return None if it is something else."""
    is_bool = isinstance(value, bool) or type(value).__name__ == "bool"
    if kind is bool:
        return bool(value) if is_bool else None
    if kind in (int, float):
        if is_bool or not isinstance(value, numbers.Real):
            return None
        if kind is int and isinstance(value, numbers.Integral):
            # A float would lack the last digits of a large one.
            return int(value)
        try:
            number = float(value)
        except OverflowError:
            return None
        if kind is float:
            return number
        return int(number) if number.is_integer() else None
    if kind is pathlib.Path and isinstance(value, str | os.PathLike):
        return pathlib.Path(value)
    return value if kind is Any or isinstance(value, kind) else None


def _is_within(value: float, within: str) -> bool:
    low, high = (float(end) for end in within[1:-1].split(", "))
    return (
        low < value < high  # NaN is nowhere.
        or (within[0] == "[" and value == low)
        or (within[-1] == "]" and value == high)
    )


def _in_words(within: str, kind: type) -> str:
    low, high = within[1:-1].split(", ")
    if high != "inf":
        return f"in {within}"
    finite = " and finite" if kind is float and within[-1] == ")" else ""
    return f"{'at least' if within[0] == '[' else 'above'} {low}{finite}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the known name that a wrong one may stand for."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


# What users of other systems call a setting.
_ELSEWHERE = {
    "batch_size": "batch_tokens",
    "epochs": "steps",
    "max_steps": "steps",
    "train_steps": "steps",
    "hidden_size": "d_model",
    "num_units": "d_model",
    "dff": "ffn_dim",
    "d_ff": "ffn_dim",
    "filter_size": "ffn_dim",
    "depth": "num_layers",
    "n_layers": "num_layers",
    "n_heads": "num_heads",
    "heads": "num_heads",
    "lr": "learning_rate_scale",
    "learning_rate": "learning_rate_scale",
    "num_beams": "beam_size",
    "smoothing": "label_smoothing",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End a sentence about an unknown setting, with a known one if it is near.

    Args:
        name: The unknown one.
        known: Names of all settings.
    """
    names = {known_name: known_name for known_name in known}
    names.update({x: y for x, y in _ELSEWHERE.items() if y in names})
    found = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean `{names[found[0]]}`?" if found else "."


def overridden(configuration: Target, **given: Any) -> Target:
    """Return a configuration with those of the settings that are not None.

    Raises:
        SettingError: If a value makes no sense.
    """
    given = {name: x for name, x in given.items() if x is not None}
    return dataclasses.replace(configuration, **given)  # type: ignore


def pop_settings(
    fields: Iterable[dataclasses.Field], given: dict[str, Any]
) -> dict[str, Any]:
    """Pop settings out of keyword arguments, and check them.

    Args:
        fields: Fields of a configuration; those not given get their defaults.
        given: Keyword arguments; those taken are removed.

    Raises:
        SettingError: If a value makes no sense.
    """
    return {
        field.name: checked_value(field, given.pop(field.name, field.default))
        for field in fields
    }


def with_settings(
    fields: Iterable[dataclasses.Field],
) -> Callable[[Target], Target]:
    """Spell out the `**settings` of a target in its signature and docstring.

    The line of the docstring that describes `**settings` becomes a line for
    each, and every setting completes on Tab.

    Args:
        fields: Fields of configurations; those that the target names itself
            are left to it.
    """
    fields = list(fields)

    def decorate(target: Target) -> Target:
        is_class = isinstance(target, type)
        function: Any = target.__init__ if is_class else target  # type: ignore
        signature = inspect.signature(function)
        own = dict(signature.parameters)
        del own["settings"]
        left = [field for field in fields if field.name not in own]
        parameters = [*own.values(), *map(_parameter_of, left)]
        if is_class:
            rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
            parameters.append(rest)
        function.__signature__ = signature.replace(parameters=parameters)
        if target.__doc__:  # Not under python -OO.
            target.__doc__ = re.sub(
                r"^ +\*\*settings: .*\n(?: {12,}.*\n)*",
                lambda _: "".join(map(_line_of, left)),
                target.__doc__,
                flags=re.MULTILINE,
            )
        return target

    return decorate


def _parameter_of(field: dataclasses.Field) -> inspect.Parameter:
    kind, may_be_none = kind_of(field)
    about = setting_of(field)
    annotation: Any = field.type if about.or_object or about.several else kind
    if kind is pathlib.Path:
        annotation |= str | os.PathLike
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=annotation | None if may_be_none else annotation,
    )


def _line_of(field: dataclasses.Field) -> str:
    """Describe a setting as a docstring does, indented."""
    about = setting_of(field).described()
    text = f"{field.name}: {about[0].upper()}{about[1:]}"
    line = textwrap.fill(
        f"{text}; default: {field.default!r}.",
        width=79,
        initial_indent=" " * 8,
        subsequent_indent=" " * 12,
    )
    return f"{line}\n"
