"""Makes flags from settings: a field gives a flag, its help and its range."""

import argparse
import contextlib
import dataclasses
import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any

from keras_transformer import settings
from keras_transformer.config import EXCLUDED, JobError, UserError
from keras_transformer.settings import kind_of, setting_of


def add(
    parser: argparse.ArgumentParser,
    fields: Iterable[dataclasses.Field],
    prefix: str = "",
    default: str | None = None,
) -> None:
    """Add the flag of every field that has one, None by default.

    Args:
        parser: Gets the flags.
        fields: Fields of a configuration.
        prefix: The start of every help text.
        default: The end of every help text; by default it names the field's
            default.
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
        if default is None and field.default not in (None, False):
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
def named(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Make errors and the log name flags instead of Python's arguments."""

    def with_flags(record: logging.LogRecord) -> bool:
        record.msg = _with_flags(str(record.msg), parser)
        return True

    log = logging.getLogger("keras_transformer")
    log.addFilter(with_flags)
    try:
        yield
    except (UserError, JobError) as error:
        kind = UserError if isinstance(error, UserError) else JobError
        raise kind(_with_flags(str(error), parser)) from error
    finally:
        log.removeFilter(with_flags)


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return f"--{name.replace('_', '-')}"


def check_known(words: Iterable[str], parser: argparse.ArgumentParser) -> None:
    """End the program if a word looks like a flag and the parser has none."""
    known = {*_flags(parser), "--help"}
    for word in itertools.takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0]
        # Argparse takes the beginning of a flag too, and text with a space.
        if (
            not re.fullmatch(r"--\S+", name)
            or " " in word
            or any(flag_of.startswith(name) for flag_of in known)
        ):
            continue
        near = settings.meant(
            name[2:].replace("-", "_"),
            [flag_of[2:].replace("-", "_") for flag_of in known],
        )
        end = _with_flags(near.rstrip("."), parser)
        parser.error(f"unrecognized arguments: {word}{end}")


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    return set(re.findall(r"--[\w-]+", parser.format_usage()))


def _with_flags(message: str, parser: argparse.ArgumentParser) -> str:
    known = _flags(parser)

    def called(found: re.Match) -> str:
        return flag(found[1]) if flag(found[1]) in known else found[0]

    return re.sub(r"`(\w+)`", called, message)
