"""Settings, each declared once, and the errors that refuse them.

A setting is a field of a frozen dataclass, made by `setting`, which declares
its default, range, help and symbol. Checks, refusals and flags are made from
the fields.
"""

import contextlib
import dataclasses
import difflib
import logging
import numbers
import os
import pathlib
import re
import typing
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("keras_transformer")  # Of the whole package.


class UserError(Exception):
    """An error caused by user input.

    The message is one sentence with the names of settings in backticks;
    command lines print it, and exit with 2.
    """

    def _render_traceback_(self) -> list[str]:
        """Give IPython the sentence alone to show, as a command line does."""
        return [f"{type(self).__name__}: {self}"]


class JobError(Exception):
    """The job started but cannot continue: one sentence, and exit with 1."""


class SettingError(UserError, ValueError):
    """Refuses the value of one setting; `expected` completes "to be …"."""

    def __init__(self, setting: str, expected: str, received: Any) -> None:
        # A table is shown in lines.
        shown = re.sub(r"\s*\n\s*", " ", repr(received))[:60]
        super().__init__(
            f"Expected `{setting}` to be {expected}, received {shown}."
        )
        self.setting, self.expected = setting, expected
        self.received = received

    def __reduce__(self) -> tuple:
        return type(self), (self.setting, self.expected, self.received)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The details of a setting, besides its name, type and default."""

    help: str  # A phrase without a full stop.
    # The interval of allowed numbers, such as "[0, 1)"; for whole numbers,
    # which count something, those from 1 on if not given.
    within: str | None = None
    choices: tuple[str, ...] = ()  # All allowed values, where they are few.
    flag: bool = True  # Whether command lines have a flag for it.
    metavar: str | None = None  # What the flag's help calls the value.
    several: str | None = None  # Says that it is a list, and of what.
    # Whether an object, checked where it is used, may stand in for it.
    or_object: bool = False
    # Whether a run that has begun may go on with another value: it affects how
    # long it trains and what it keeps, not the result.
    may_change: bool = False

    def described(self) -> str:
        """Return the help with the choices or the range."""
        allowed = f": {', '.join(self.choices)}" if self.choices else ""
        if self.within and not self.within.endswith("inf)"):
            allowed = f", in {self.within}"
        return self.help + allowed


def setting(default: Any, help: str, **details: Any) -> Any:
    """Declare a field with its default and what `Setting` holds."""
    return dataclasses.field(
        default=default, metadata={"setting": Setting(help, **details)}
    )


def setting_of(field: dataclasses.Field) -> Setting:
    """Return what `setting` declared about a field."""
    return field.metadata["setting"]


def kind_of(field: dataclasses.Field) -> type:
    """Return the type of a setting's values, beside None."""
    return (typing.get_args(field.type) or (field.type,))[0]


def settings_of(configuration: Any) -> dict[str, dataclasses.Field]:
    """Return the fields of a configuration that `setting` declared."""
    fields = dataclasses.fields(configuration)
    return {
        field.name: field for field in fields if "setting" in field.metadata
    }


class Checked:
    """A frozen dataclass that checks its settings when it is made."""

    def __post_init__(self) -> None:
        """Check every setting, and give it its field's type."""
        for name, field in settings_of(self).items():
            value = checked_value(field, getattr(self, name))
            object.__setattr__(self, name, value)


def checked_value(field: dataclasses.Field, value: Any) -> Any:
    """Convert a setting to the type of its field, as `5.0` and NumPy's 5."""
    kind, about = kind_of(field), setting_of(field)
    if value is None and field.default is None:
        return None
    if about.several and not about.or_object:
        is_one = isinstance(value, str | os.PathLike)
        if is_one or not isinstance(value, Iterable):
            raise SettingError(field.name, about.several, value)
        return tuple(of_kind(field.name, kind, item) for item in value)
    if about.or_object and value is not None and _as(kind, value) is None:
        return value
    converted = of_kind(field.name, kind, value)
    if about.choices and converted not in about.choices:
        one_of = f"one of {', '.join(about.choices)}"
        raise SettingError(field.name, one_of, value)
    if kind is int or about.within:
        _check_range(field.name, converted, about.within or "[1, inf)")
    return converted


# The first whole number that an int64 of TensorFlow cannot be.
TOO_LARGE = 2**63
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    pathlib.Path: "a path",
}


def of_kind(name: str, kind: type, value: Any) -> Any:
    """Convert an argument as a setting's value, or refuse its type."""
    converted = _as(kind, value)
    if converted is None:
        raise SettingError(name, _KINDS.get(kind, f"a {kind.__name__}"), value)
    return converted


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Check an argument that counts something."""
    number = of_kind(name, int, value)
    _check_range(name, number, f"[{least}, inf)")
    return number


def _as(kind: type, value: Any) -> Any:
    """Convert `value` to `kind`; return None if it is something else."""
    if kind in (int, float):
        is_one = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_one or (kind is int and value % 1 != 0):
            return None
        with contextlib.suppress(OverflowError):  # It has 400 digits.
            return kind(value)
        return None
    if kind is pathlib.Path and isinstance(value, str | os.PathLike):
        return pathlib.Path(value) if os.fspath(value) else None
    if kind is bool and type(value).__name__ == "bool":  # NumPy's, too.
        return bool(value)
    return value if kind is Any or isinstance(value, kind) else None


def _check_range(name: str, value: float, within: str) -> None:
    low, high = (float(end) for end in within[1:-1].split(", "))
    is_low = within[0] == "[" and value == low
    is_high = within[-1] == "]" and value == high
    if low < value < high or is_low or is_high:  # NaN is nowhere.
        if isinstance(value, int) and value >= TOO_LARGE:
            raise SettingError(name, "below 2^63", value)
        return
    expected = f"in {within}"
    if within.endswith("inf)"):
        expected = f"{'at least' if within[0] == '[' else 'above'} {low:g}"
        if isinstance(value, float):
            expected += " and finite"
    raise SettingError(name, expected, value)


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the known name that a wrong one may stand for."""
    matches = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""
