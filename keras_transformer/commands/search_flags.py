"""The flags of the search, shared by all verbs."""

import argparse
import dataclasses
import pathlib
from typing import TYPE_CHECKING

from keras_transformer.commands import setting_flags
from keras_transformer.config import (
    ENSEMBLE_MEANS,
    MAX_SOURCE_LENGTH,
    RUN_SEARCH,
    SEARCH_PRECISIONS,
    Sampling,
    Search,
    UserError,
)
from keras_transformer.data import lines
from keras_transformer.machine import devices
from keras_transformer.runs.run_config import RunConfig

if TYPE_CHECKING:
    from keras_transformer.run import Run

_FIELDS = {field.name: field for field in dataclasses.fields(Search)}
_SAMPLING = dataclasses.fields(Sampling)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every verb that loads a model."""
    parser.add_argument(
        "--run-dir", required=True, type=pathlib.Path, help="the run directory"
    )
    parser.add_argument(
        "--average",
        type=int,
        help="number of newest checkpoints to average; default: the weights "
        "that validated best at the end of the training",
    )


def add_ensemble_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every verb that may search with several models."""
    parser.add_argument(
        "--ensemble",
        action="append",
        type=pathlib.Path,
        default=[],
        metavar="RUN",
        help="another run of the same vocabulary, whose model searches "
        "together with that of --run-dir; may be given several times",
    )
    parser.add_argument(
        "--ensemble-mean",
        choices=ENSEMBLE_MEANS,
        default=ENSEMBLE_MEANS[0],
        help="what the models average at each step; default: %(default)s",
    )


def run_of(args: argparse.Namespace) -> "Run":
    """Open the run `--run-dir` with those beside it."""
    from keras_transformer.run import Run

    return Run(args.run_dir, args.ensemble, args.ensemble_mean)


def add_beam_flags(
    parser: argparse.ArgumentParser, names: tuple[str, ...] = RUN_SEARCH
) -> None:
    """Add the flags whose defaults come from the run."""
    setting_flags.add(
        parser,
        [_FIELDS[name] for name in names],
        default="; default: the run's",
    )


def add_speed_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every verb that translates batches."""
    parser.add_argument(
        "--precision",
        choices=SEARCH_PRECISIONS,
        default=SEARCH_PRECISIONS[0],
        help="type to multiply in; bfloat16 and int8 round, and are faster "
        "on processors that support them (bfloat16: AMX or AVX512-BF16; "
        "int8: AMX or VNNI); default: %(default)s",
    )
    add_shortlist_flag(parser)
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="batches searched at the same time; they share the cores of the "
        "processor, and each uses its own memory; default: by the cores and "
        "the model's width; 1 on a GPU",
    )


def add_shortlist_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag of every verb that searches."""
    parser.add_argument(
        "--shortlist",
        type=pathlib.Path,
        metavar="FILE",
        help="score only the target pieces that FILE, written by the verb "
        "shortlist, lists for the source; faster, with nearly the same results",
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


def prepare(
    args: argparse.Namespace, n_best: int = 1
) -> tuple[RunConfig, Search]:
    """Read the run `--run-dir`, and its search with the flags above."""
    run = RunConfig.load(args.run_dir)
    return run, search_from(args, run.search, n_best)


def search_from(
    args: argparse.Namespace, search: Search, n_best: int = 1
) -> Search:
    """Override the search of a run by the flags above.

    Without a flag, a text has `n_best` translations, or as many as beams.
    """
    if getattr(args, "shortlist", None):
        lines.open_file(args.shortlist, "--shortlist").close()
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


def searches_of(args: argparse.Namespace, run: RunConfig) -> int:
    """Choose how many searches share the cores, by `--parallel` or the rule."""
    return devices.searches(args.parallel, devices.cores(), run.model.d_model)
