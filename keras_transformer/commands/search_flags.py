"""The flags of the search, once for every command line."""

import argparse
import dataclasses
import pathlib

from keras_transformer.commands import setting_flags
from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    RUN_SEARCH,
    SEARCH_PRECISIONS,
    Sampling,
    Search,
    UserError,
)
from keras_transformer.machine import devices
from keras_transformer.runs.run_config import RunConfig

_FIELDS = {field.name: field for field in dataclasses.fields(Search)}
_SAMPLING = dataclasses.fields(Sampling)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Add what every verb that loads a model has."""
    parser.add_argument(
        "--run-dir", required=True, type=pathlib.Path, help="as in train"
    )
    parser.add_argument(
        "--average",
        type=int,
        help="newest checkpoints averaged; default: what validation found "
        "better when the training ended",
    )


def add_beam_flags(
    parser: argparse.ArgumentParser, names: tuple[str, ...] = RUN_SEARCH
) -> None:
    """Add what a run has its own defaults of."""
    setting_flags.add(
        parser,
        [_FIELDS[name] for name in names],
        default="; default: the run's",
    )


def add_speed_flags(parser: argparse.ArgumentParser) -> None:
    """Add what every verb that translates batches has."""
    parser.add_argument(
        "--precision",
        choices=SEARCH_PRECISIONS,
        default=SEARCH_PRECISIONS[0],
        help="what to compute in; bfloat16 rounds, and is faster where the "
        "processor multiplies it (AMX, AVX512-BF16); default: %(default)s",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="batches searched at the same time; each shares the cores of the "
        "processor with the others and has memory of its own; default: by the "
        "cores and the model's width, on a GPU 1",
    )


def add_search_flags(parser: argparse.ArgumentParser) -> None:
    """Add every setting of the search; drawing by chance has its own."""
    add_beam_flags(parser)
    setting_flags.add(
        parser,
        [field for name, field in _FIELDS.items() if name not in RUN_SEARCH],
    )


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add what draws by chance instead of searching."""
    parser.add_argument(
        "--sample",
        action="store_true",
        help="draw by chance instead of searching; --n-best draws",
    )
    setting_flags.add(parser, _SAMPLING, prefix="of --sample: ")


def search_of_run(args: argparse.Namespace, n_best: int = 1) -> Search:
    """Read the search from the flags, over that of the run `--run-dir`.

    Raises:
        UserError: If that is no run, or as `search_from`.
    """
    return search_from(args, RunConfig.load(args.run_dir).search, n_best)


def search_from(
    args: argparse.Namespace, search: Search, n_best: int = 1
) -> Search:
    """Take `search` with what the flags above say otherwise.

    Args:
        args: The flags.
        search: That of a run.
        n_best: Translations of a text where no flag says; fewer where there
            are fewer beams.

    Raises:
        UserError: If a setting makes no sense, or a flag of `--sample` comes
            without it.
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


def searches_of(args: argparse.Namespace, run: RunConfig) -> int:
    """Choose how many searches share the cores, by `--parallel` or the rule.

    Raises:
        UserError: If `--parallel` is below 1.
    """
    return devices.searches(args.parallel, devices.cores(), run.model.d_model)
