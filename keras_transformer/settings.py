"""Settings, each declared once, and the errors that refuse them.

A setting is a field of a frozen dataclass, made by `setting`, which declares
its default, range, help and symbol. Checks, refusals, flags, signatures and
docstrings are made from the fields.
"""

import dataclasses
import difflib
import functools
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

    The message is one sentence with the names of arguments in backticks;
    command lines print it with flags in their place, and exit with 2.
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
    """The details of a setting, besides its name, type and default.

    Attributes:
        help: A phrase without a full stop, for the flag's help and a line
            of a docstring.
        within: The interval of allowed numbers, such as `"[0, 1)"`; for whole
            numbers, which count something, those from 1 on if not given.
        choices: All allowed values, where they are few.
        flag: Whether command lines have a flag for it.
        metavar: What the flag's help calls the value.
        of_layers: Whether the layers of a model's stacks take it.
        several: Says that it is a list, and of what; each item has a flag.
        or_object: Whether something of another type may stand in for it,
            which is checked where it is used.
        may_change: Whether a run that has begun may go on with another value:
            it affects how long it trains and what it keeps, not the result.
    """

    help: str
    within: str | None = None
    choices: tuple[str, ...] = ()
    flag: bool = True
    metavar: str | None = None
    of_layers: bool = False
    several: str | None = None
    or_object: bool = False
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


def kind_of(field: dataclasses.Field) -> tuple[type, bool]:
    """Return the type of a setting's values, and whether None is allowed."""
    kinds = typing.get_args(field.type) or (field.type,)
    return kinds[0], field.default is None


def within_of(field: dataclasses.Field) -> str | None:
    """Return the interval of a setting's numbers."""
    is_count = kind_of(field)[0] is int
    return setting_of(field).within or ("[1, inf)" if is_count else None)


def check_settings(configuration: Any) -> None:
    """Check every setting of a new configuration; give it its field's type."""
    for field in dataclasses.fields(configuration):
        if "setting" in field.metadata:
            value = checked_value(field, getattr(configuration, field.name))
            object.__setattr__(configuration, field.name, value)


def checked_value(field: dataclasses.Field, value: Any) -> Any:
    """Convert a setting to the type of its field, as `5.0` and NumPy's 5."""
    kind, may_be_none = kind_of(field)
    about, within = setting_of(field), within_of(field)
    if value is None and may_be_none:
        return None
    if about.several and not about.or_object:
        is_one = isinstance(value, str | os.PathLike)
        if is_one or not isinstance(value, Iterable):
            raise SettingError(field.name, about.several, value)
        return tuple(of_kind(field.name, kind, item) for item in value)
    if about.or_object and _as(kind, value) is None:
        return value
    converted = of_kind(field.name, kind, value)
    expected = None
    if about.choices and converted not in about.choices:
        expected = f"one of {', '.join(about.choices)}"
    elif within and not _is_within(converted, within):
        expected = f"in {within}"
        if within.endswith("inf)"):
            least = "at least" if within[0] == "[" else "above"
            finite = " and finite" if kind is float else ""
            expected = f"{least} {within[1:].split(',')[0]}{finite}"
    elif kind is int and converted >= TOO_LARGE:
        expected = "below 2^63"
    if expected:
        raise SettingError(field.name, expected, value)
    return converted


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
    """Convert an argument as a setting's value, or refuse its type."""
    converted = _as(kind, value)
    if converted is None:
        expected = _KINDS.get(kind, f"a {kind.__name__}")
        raise SettingError(name, expected, value)
    return converted


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Check an argument that counts something."""
    number = of_kind(name, int, value)
    if number < least:
        raise SettingError(name, f"at least {least}", value)
    if number >= TOO_LARGE:
        raise SettingError(name, "below 2^63", value)
    return number


def _as(kind: type, value: Any) -> Any:
    """Convert `value` to `kind`; return None if it is something else."""
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        try:
            number = kind(value)  # type: ignore
        except (OverflowError, ValueError):
            return None
        return None if kind is int and number != value else number
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


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the known name that a wrong one may stand for."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End a sentence about an unknown setting, with a known one if near."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean `{found[0]}`?" if found else "."


def overridden(configuration: Target, **given: Any) -> Target:
    """Return a configuration with those of the settings that are not None."""
    given = {name: x for name, x in given.items() if x is not None}
    return dataclasses.replace(configuration, **given)  # type: ignore


def pop_settings(
    fields: Iterable[dataclasses.Field], given: dict[str, Any]
) -> dict[str, Any]:
    """Pop the settings of fields out of keyword arguments, and check them."""
    return {
        field.name: checked_value(field, given.pop(field.name, field.default))
        for field in fields
    }


def with_settings(
    fields: Iterable[dataclasses.Field],
) -> Callable[[Target], Target]:
    """Spell out the `**settings` of a target in its signature and docstring.

    The line of the docstring that describes `**settings` becomes a line for
    each, and every setting completes on Tab. Those that the target names itself
    are left to it.
    """
    return functools.partial(_spelled_out, fields=list(fields))


def _spelled_out(target: Target, fields: list[dataclasses.Field]) -> Target:
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


def _parameter_of(field: dataclasses.Field) -> inspect.Parameter:
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=field.type,
    )


def _line_of(field: dataclasses.Field) -> str:
    """Describe a setting as a docstring does, indented."""
    about = setting_of(field).described()
    line = textwrap.fill(
        f"{field.name}: {about[0].upper()}{about[1:]}; default: "
        f"{field.default!r}.",
        width=79,
        initial_indent=" " * 8,
        subsequent_indent=" " * 12,
    )
    return f"{line}\n"
