"""Makes flags from settings: a field gives a flag, its help and its range."""

import argparse
import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any

from keras_transformer.commands.command_line import Parser
from keras_transformer.config import EXCLUDED, JobError, UserError
from keras_transformer.settings import kind_of, setting_of


def add(
    parser: argparse.ArgumentParser,
    fields: Iterable[dataclasses.Field],
    prefix: str = "",
    default: str | None = None,
) -> None:
    """Add the flag of every field that has one, None by default.

    Every help begins with `prefix` and ends with `default`, or else with the
    field's default.
    """
    for field in fields:
        about, (kind, _) = setting_of(field), kind_of(field)
        if not about.flag:
            continue
        known: dict[str, Any] = {"type": kind, "metavar": about.metavar}
        if kind is bool:
            known = {"action": "store_const", "const": True}
        elif about.choices:
            known["metavar"] = field.name.upper()
        if field.name in EXCLUDED:
            known["action"] = _Instead
        ending = default or ""
        if about.several:
            known["action"] = "append"
            ending = "; may be given several times"
        elif default is None and field.default not in (None, False):
            ending = f"; default: {field.default}"
        text = f"{prefix}{about.described()}{ending}"
        parser.add_argument(
            flag(field.name),
            help=re.sub(r"`(\w+)`", lambda name: flag(name[1]), text),
            **known,
        )


class _Instead(argparse.Action):
    """Stores a value, and forgets the one that it excludes."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, EXCLUDED[self.dest], None)


def given(
    args: argparse.Namespace, fields: Iterable[dataclasses.Field]
) -> dict[str, Any]:
    """Collect the settings whose flags were given."""
    values = {field.name: getattr(args, field.name, None) for field in fields}
    return {name: x for name, x in values.items() if x is not None}


@contextlib.contextmanager
def named(parser: Parser) -> Iterator[None]:
    """Make errors and the log name flags instead of Python's arguments."""

    def with_flags(record: logging.LogRecord) -> bool:
        record.msg = parser.named(str(record.msg))
        return True

    log = logging.getLogger("keras_transformer")
    log.addFilter(with_flags)
    try:
        yield
    except (UserError, JobError) as error:
        kind = UserError if isinstance(error, UserError) else JobError
        raise kind(parser.named(str(error))) from error
    finally:
        log.removeFilter(with_flags)


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return f"--{name.replace('_', '-')}"
