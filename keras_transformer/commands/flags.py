"""Makes flags from settings, and settings from the flags that were given.

A field gives a flag, its help and its range. Verbs share the flags of a run, of
its weights and its search.
"""

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from keras_transformer.commands import command_line
from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    RUN_SEARCH,
    Sampling,
    Search,
    UserError,
)
from keras_transformer.machine import devices
from keras_transformer.runs.weights import WEIGHTS
from keras_transformer.settings import kind_of, setting_of

if TYPE_CHECKING:
    from keras_transformer.run import Run

_FIELDS = {field.name: field for field in dataclasses.fields(Search)}
_SAMPLING = dataclasses.fields(Sampling)


def add(
    parser: argparse.ArgumentParser,
    fields: Iterable[dataclasses.Field],
    first: str = "",
    default: str | None = None,
) -> None:
    """Add the flag of every field that has one, None by default.

    Every help begins with `first` and ends with `default`, or else with the
    field's default.
    """
    for field in fields:
        about, kind = setting_of(field), kind_of(field)
        if not about.flag:
            continue
        known: dict[str, Any] = {"type": kind, "metavar": about.metavar}
        if kind is bool:
            known = {"action": "store_const", "const": True}
        elif about.choices:
            known["metavar"] = field.name.upper()
        ending = default or ""
        if about.several:
            known["action"] = "append"
            ending = "; may be given several times"
        elif default is None and field.default not in (None, False):
            ending = f"; default: {field.default}"
        text = f"{first}{about.described()}{ending}"
        text = re.sub(r"`(\w+)`", lambda name: flag(name[1]), text)
        parser.add_argument(flag(field.name), help=text, **known)


def given(
    args: argparse.Namespace, fields: Iterable[dataclasses.Field]
) -> dict[str, Any]:
    """Collect the settings whose flags were given."""
    values = {field.name: getattr(args, field.name, None) for field in fields}
    return {name: x for name, x in values.items() if x is not None}


def flag(name: str) -> str:
    """Return the flag of an argument."""
    return f"--{name.replace('_', '-')}"


def add_run_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flag of a run, and those of its weights, by default all."""
    parser.add_argument(
        "--run-dir", required=True, type=pathlib.Path, help="the run directory"
    )
    add(parser, [WEIGHTS[name] for name in names or WEIGHTS])


def add_beam_flags(
    parser: argparse.ArgumentParser, names: Iterable[str] = RUN_SEARCH
) -> None:
    """Add the flags whose defaults come from the run."""
    fields = [_FIELDS[name] for name in names]
    add(parser, fields, default="; default: the run's")


def add_parallel_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of every verb that translates batches."""
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="batches searched at the same time; they share the cores of the "
        "processor, and each uses its own memory; default: by the cores and "
        "the model's width; 1 on a GPU",
    )


def add_search_flags(
    parser: argparse.ArgumentParser, n_best: str | None = "1"
) -> None:
    """Add every setting of the search, except those of sampling.

    `n_best` is what the verb takes without that flag, in words. With None it
    takes one translation of each source, as long as in training.
    """
    add_beam_flags(parser)
    known = {"n_best", *RUN_SEARCH}
    if n_best is None:
        known.add("max_source_length")
    else:
        add(parser, [_FIELDS["n_best"]], default=f"; default: {n_best}")
    add(parser, [x for name, x in _FIELDS.items() if name not in known])


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that draw at random instead of searching."""
    said = "draw at random instead of searching"
    parser.add_argument("--sample", action="store_true", help=said)
    add(parser, _SAMPLING, first="with --sample: ")


def prepare(args: argparse.Namespace, n_best: int = 1) -> tuple["Run", Search]:
    """Open the run with the weights and search given; then load TensorFlow."""
    from keras_transformer.run import Run

    run = Run(args.run_dir, **given(args, WEIGHTS.values()))
    search = search_from(args, run.config.search, n_best)
    command_line.quiet_tensorflow()
    if "parallel" in args:
        width, cores = run.config.model.d_model, devices.cores()
        searches = args.parallel or devices.searches(cores, width)
        devices.share_cores(searches)
    return run, search


def search_from(
    args: argparse.Namespace, search: Search, n_best: int = 1
) -> Search:
    """Override the search of a run by the flags that were given.

    Without a flag, a text has `n_best` translations, or as many as beams.
    """
    asked = given(args, _FIELDS.values())
    asked.setdefault("max_source_length", MAX_SOURCE_LENGTH)
    drawing = given(args, _SAMPLING)
    if getattr(args, "sample", False):  # Not every verb has it.
        asked["sampling"] = Sampling(**drawing)
    elif drawing:
        alone = flag(next(iter(drawing)))
        raise UserError(
            f"Expected --sample beside {alone}, received {alone} alone; add "
            "--sample or leave it out."
        )
    else:
        beams = asked.get("beam_size", search.beam_size)
        n_best = min(n_best, max(beams, 1))
    asked.setdefault("n_best", n_best)
    return dataclasses.replace(search, **asked)
