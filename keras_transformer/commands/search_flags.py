"""The flags of the search, shared by all verbs."""

import argparse
import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING

from keras_transformer.commands import command_line, setting_flags
from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    RUN_SEARCH,
    Sampling,
    Search,
    UserError,
)
from keras_transformer.data import lines
from keras_transformer.machine import devices
from keras_transformer.runs.weights import WEIGHTS, Weights

if TYPE_CHECKING:
    from keras_transformer.run import Run

_FIELDS = {field.name: field for field in dataclasses.fields(Search)}
_SAMPLING = dataclasses.fields(Sampling)


def add_run_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flag of a run, and those of its weights, by default all."""
    parser.add_argument(
        "--run-dir", required=True, type=pathlib.Path, help="the run directory"
    )
    setting_flags.add(parser, [WEIGHTS[name] for name in names or WEIGHTS])


def add_beam_flags(
    parser: argparse.ArgumentParser, names: tuple[str, ...] = RUN_SEARCH
) -> None:
    """Add the flags whose defaults come from the run."""
    setting_flags.add(
        parser,
        [_FIELDS[name] for name in names],
        default="; default: the run's",
    )


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


def add_search_flags(parser: argparse.ArgumentParser) -> None:
    """Add every setting of the search, except those of sampling."""
    add_beam_flags(parser)
    setting_flags.add(
        parser,
        [field for name, field in _FIELDS.items() if name not in RUN_SEARCH],
    )


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that draw at random instead of searching."""
    parser.add_argument(
        "--sample",
        action="store_true",
        help="draw at random instead of searching",
    )
    setting_flags.add(parser, _SAMPLING, prefix="with --sample: ")


def open_run(args: argparse.Namespace) -> "Run":
    """Open the run `--run-dir` with the weights that the flags ask for.

    It loads TensorFlow only with the model, so that other mistakes show before.
    """
    from keras_transformer.run import Run

    weights = Weights(**setting_flags.given(args, WEIGHTS.values()))
    if weights.shortlist:
        lines.open_file(weights.shortlist, "--shortlist").close()
    run = Run.opened(args.run_dir, weights)
    searches = None
    if "parallel" in args:
        width = run.config.model.d_model
        searches = devices.searches(args.parallel, devices.cores(), width)
    run.before_loading = functools.partial(load_tensorflow, searches)
    return run


def load_tensorflow(searches: int | None) -> None:
    """Load TensorFlow, whose operators share the cores among searches."""
    command_line.quiet_tensorflow()
    if searches:
        devices.share_cores(searches)


def prepare(args: argparse.Namespace, n_best: int = 1) -> tuple["Run", Search]:
    """Open the run, and change its search by the flags above."""
    run = open_run(args)
    return run, search_from(args, run.config.search, n_best)


def search_from(
    args: argparse.Namespace, search: Search, n_best: int = 1
) -> Search:
    """Override the search of a run by the flags above.

    Without a flag, a text has `n_best` translations, or as many as beams.
    """
    given = setting_flags.given(args, _FIELDS.values())
    given.setdefault("max_source_length", MAX_SOURCE_LENGTH)
    drawing = setting_flags.given(args, _SAMPLING)
    if getattr(args, "sample", False):  # Not every verb has it.
        given["sampling"] = Sampling(**drawing)
    elif drawing:
        flag = setting_flags.flag(next(iter(drawing)))
        raise UserError(
            f"Expected --sample beside {flag}, received {flag} alone; add "
            "--sample or leave it out."
        )
    else:
        beams = given.get("beam_size", search.beam_size)
        n_best = min(n_best, max(beams, 1))
    given.setdefault("n_best", n_best)
    return dataclasses.replace(search, **given)
