"""The flags of the search, once for every command line."""

import argparse
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from keras_transformer import devices
from keras_transformer.config import (
    PAPER_SEARCH,
    SEARCH_PRECISIONS,
    SearchConfig,
    UserError,
)
from keras_transformer.decoding.options import (
    MAX_SOURCE_LENGTH,
    Sampling,
    SearchOptions,
)
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation import parallel

# What a run says where no flag does.
_OF_THE_RUN = tuple(field.name for field in dataclasses.fields(SearchConfig))
_SAMPLING = ("temperature", "top_k", "top_p", "seed")


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


def add_penalty_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--length-penalty`, which every verb that scores has."""
    parser.add_argument(
        "--length-penalty",
        type=float,
        help="alpha of ((5 + length) / 6)^alpha; "
        + _default(SearchConfig.length_penalty),
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


def add_beam_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a run has its own defaults of."""
    parser.add_argument(
        "--beam-size",
        type=int,
        help=f"1 is greedy; {_default(SearchConfig.beam_size)}",
    )
    add_penalty_flag(parser)
    parser.add_argument(
        "--max-extra-length",
        type=int,
        help="most tokens of a translation beyond its source's; "
        + _default(SearchConfig.max_extra_length),
    )


def add_search_flags(
    parser: argparse.ArgumentParser, n_best: int | None = 1
) -> None:
    """Add every option of the search; drawing by chance has its own.

    Args:
        parser: Gets the flags.
        n_best: Translations of a text by default; None for 4, or as many as
            there are beams where those are fewer.
    """
    add_beam_flags(parser)
    add = parser.add_argument
    add(
        "--n-best",
        type=int,
        default=n_best,
        help="translations of a text; default: "
        + (f"{n_best}" if n_best else "4, or the beam size if that is smaller"),
    )
    add(
        "--max-source-length",
        type=int,
        default=MAX_SOURCE_LENGTH,
        help="tokens after which a source is cut; default: %(default)s",
    )
    add(
        "--min-length",
        type=int,
        default=SearchOptions.min_length,
        help="fewest tokens of a translation; default: %(default)s",
    )
    add(
        "--max-length",
        type=int,
        help="most tokens of a translation; default: those of the "
        "source and --max-extra-length",
    )
    add(
        "--no-unknown",
        action="store_true",
        help="never write the unknown piece",
    )
    add(
        "--no-repeat-ngram",
        type=int,
        default=SearchOptions.no_repeat_ngram,
        metavar="N",
        help="let no row of N tokens occur twice; default: any may",
    )


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add what draws by chance instead of searching."""
    add = parser.add_argument
    add(
        "--sample",
        action="store_true",
        help="draw by chance instead of searching; --n-best draws",
    )
    add(
        "--temperature",
        type=float,
        help="of --sample: divides the logits; default: 1",
    )
    add(
        "--top-k",
        type=int,
        help="of --sample: draw among the K likeliest tokens; default: all",
    )
    add(
        "--top-p",
        type=float,
        help="of --sample: draw among the fewest tokens whose probability "
        "reaches P; default: all",
    )
    add(
        "--seed",
        type=int,
        help="of --sample: the same draws again; default: others every time",
    )


def search_from(
    args: argparse.Namespace, search: SearchConfig
) -> dict[str, Any]:
    """What `add_beam_flags` gives, or else `search`, by name.

    Raises:
        UserError: If a number is out of range.
    """
    found = {
        name: getattr(search, name)
        if getattr(args, name) is None
        else getattr(args, name)
        for name in _OF_THE_RUN
    }
    with refusals():
        SearchOptions(**found)
    return found


def options_of_run(args: argparse.Namespace) -> SearchOptions:
    """As `options_from`, with the search of the run `--run-dir`.

    Raises:
        UserError: If that is no run, or as `options_from`.
    """
    return options_from(args, RunConfig.load(args.run_dir).search)


def options_from(
    args: argparse.Namespace, search: SearchConfig = PAPER_SEARCH
) -> SearchOptions:
    """The options that the flags above give.

    Args:
        args: The flags.
        search: What they say where they were not given.

    Raises:
        UserError: If a number is out of range, or a flag of `--sample` comes
            without it.
    """
    # Not every verb has them.
    is_sampling = getattr(args, "sample", False)
    drawing = {
        name: getattr(args, name)
        for name in _SAMPLING
        if getattr(args, name, None) is not None
    }
    if drawing and not is_sampling:
        flag = next(iter(drawing)).replace("_", "-")
        raise UserError(
            f"Expected --sample beside --{flag}, received --{flag} alone; add "
            "--sample or leave it out."
        )
    of_run = search_from(args, search)
    n_best = args.n_best
    if n_best is None:
        n_best = 4 if is_sampling else min(4, of_run["beam_size"])
    with refusals():
        return SearchOptions(
            **of_run,
            n_best=n_best,
            min_length=args.min_length,
            max_length=args.max_length,
            max_source_length=args.max_source_length,
            no_unknown=args.no_unknown,
            no_repeat_ngram=args.no_repeat_ngram,
            sampling=Sampling(**drawing) if is_sampling else None,
        )


def searches_of(args: argparse.Namespace, run: RunConfig) -> int:
    """How many searches share the cores, as `--parallel` or the rule says.

    Raises:
        UserError: If `--parallel` is below 1.
    """
    with refusals():
        return parallel.searches(
            args.parallel, devices.cores(), run.model.d_model
        )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn a `ValueError` about an option into the user's mistake that it is.

    Raises:
        UserError: With the same sentence, in the names of the flags.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(_of_flags(str(error))) from None


def _of_flags(message: str) -> str:
    """Say "`n_best` must be … Received: n_best=8" by the names of the flags."""
    found = re.fullmatch(r"(`\w+` must be .*)\. Received: (.*)", message)
    if not found:
        return f"{message}."
    wanted, received = found.groups()
    wanted = re.sub(r"`(\w+)`", lambda name: _flag(name[1]), wanted)
    received = re.sub(r"(\w+)=", lambda name: f"{_flag(name[1])} ", received)
    wanted = wanted.replace(" must be ", " to be ")
    return f"Expected {wanted}, received {received}."


def _default(value: float) -> str:
    """The end of a help text, with what most runs say."""
    return f"default: the run's, which is {value} but for its preset"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
