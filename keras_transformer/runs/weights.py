"""The weights of a run, or of several, that are used, and why.

A short run's average reaches back to weights that knew little, so the last
weights may be better. Both are validated when a training ends.

This module needs neither Keras nor TensorFlow: reading it is instant.
"""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformer.config import (
    ENSEMBLE_MEANS,
    SEARCH_PRECISIONS,
    UserError,
)
from keras_transformer.machine import files
from keras_transformer.runs.checkpoints import list_checkpoints, step_of
from keras_transformer.runs.layout import FINAL_FILE, RESULT_FILE
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.settings import setting, settle

# Run directories with their configurations: a run, then those beside it.
Runs = Sequence[tuple[pathlib.Path, RunConfig]]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The weights of a run that are taken.

    Attributes:
        run_dir: The run directory.
        checkpoints: Names of the checkpoints behind them, oldest first; none
            if only the final weights are left.
        checksum: CRC-32 of the file that they, or the newest of them, are in.
        said: What the log calls them.
        is_final: Whether they are in `final.weights.h5`.
        ema: Factor of the moving average that they are; None if they are none.
    """

    run_dir: pathlib.Path
    checkpoints: tuple[str, ...]
    checksum: int | None
    said: str
    is_final: bool = False
    ema: float | None = None

    def __str__(self) -> str:
        """Identify them: other weights have another text."""
        return " ".join([*self.checkpoints, f"{self.checksum:08x}"])


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights that are used, from the flags to the reports.

    Attributes:
        chosen: What was taken of each run; empty until that is known.
    """

    average: int | None = setting(
        None,
        "number of newest checkpoints to average; if not given, the weights "
        "that validated best at the end of the training",
    )
    ensemble: tuple[pathlib.Path, ...] = setting(
        (),
        "another run of the same vocabulary, whose model searches together "
        "with that of `run_dir`",
        several="a list of run directories",
        metavar="RUN",
    )
    ensemble_mean: str = setting(
        ENSEMBLE_MEANS[0],
        "what the models average at each step",
        choices=ENSEMBLE_MEANS,
    )
    precision: str = setting(
        SEARCH_PRECISIONS[0],
        "type to multiply in; bfloat16 and int8 round, and are faster on "
        "processors that support them (bfloat16: AMX or AVX512-BF16; int8: "
        "AMX or VNNI)",
        choices=SEARCH_PRECISIONS,
    )
    shortlist: pathlib.Path | None = setting(
        None,
        "score only the target pieces that FILE, written by the verb "
        "shortlist, lists for the source; faster, with nearly the same results",
        metavar="FILE",
    )
    chosen: tuple[Chosen, ...] = ()

    def __post_init__(self) -> None:
        settle(self)

    def runs(self, run_dir: str | os.PathLike) -> Runs:
        """Read the configurations of a run and of those beside it.

        Raises:
            UserError: If one is not a run directory.
        """
        paths = (pathlib.Path(run_dir), *self.ensemble)
        return [(path, RunConfig.load(path)) for path in paths]

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not as by default."""
        return {
            name: getattr(self, name)
            for name, field in WEIGHTS.items()
            if getattr(self, name) != field.default
        }

    @property
    def identity(self) -> str:
        """Identify what was chosen: other weights have another text."""
        mean = f", mean of {self.ensemble_mean}" if self.ensemble else ""
        return " + ".join(map(str, self.chosen)) + mean

    def report(self) -> dict[str, Any]:
        """Say what was used, ready for JSON."""
        own, *others = self.chosen
        report: dict[str, Any] = {
            "precision": self.precision,
            "ema": own.ema,
            "checkpoints": [*own.checkpoints],
        }
        if others:
            report["ensemble"] = {
                os.fspath(each.run_dir): [*each.checkpoints] for each in others
            }
            report["ensemble_mean"] = self.ensemble_mean
        if self.shortlist:
            report["shortlist"] = os.fspath(self.shortlist)
        return report


# The settings of the class, by name.
WEIGHTS = {
    field.name: field
    for field in dataclasses.fields(Weights)
    if "setting" in field.metadata
}


AVERAGE, LAST, BEST = "average", "last", "best"

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Result:
    """The weights in `final.weights.h5`, and why they were taken.

    Attributes:
        step: Updates of the whole training.
        better: `"average"`, `"last"` or `"best"`: the weights in the file.
        averages: The average in words, such as "average of the last 5
            checkpoints".
        checkpoints: Names of the checkpoints behind the better one.
        validation: The figures of each of these weights on the validation
            set: `loss`, `perplexity`, `token_accuracy` and `bleu`, of a sample
            decoded greedily. Weights that could not be validated have none.
            Only a training with `patience` has the best beside the others.
        weights: CRC-32 of `final.weights.h5`.
        by: `"loss"` or `"bleu"`: the figure that decided.
        averaged: How many checkpoints the average is of; 0 if not noted.
    """

    step: int
    better: str
    averages: str
    checkpoints: tuple[str, ...]
    validation: Mapping[str, Mapping[str, float]]
    weights: int | None
    by: str = "loss"
    averaged: int = 0

    def sentence(self) -> str:
        """Name the weights, and why they were taken."""
        names = {
            AVERAGE: self.averages,
            LAST: "last weights",
            BEST: "weights of the best validation",
        }
        if not self.validation.keys() >= {AVERAGE, LAST}:
            return f"{names[self.better]} (could not be validated)"
        what, digits = {"loss": ("loss", 3), "bleu": ("BLEU", 1)}[self.by]
        found = {which: x[self.by] for which, x in self.validation.items()}
        value = found.pop(self.better)
        said = f"{names[self.better]} (validation {what} {value:.{digits}f}"
        for other in (which for which in names if which in found):
            # From one checkpoint alone they are the same weights.
            if len(self.checkpoints) > 1 or found[other] != value:
                said += f"; {names[other]}: {found[other]:.{digits}f}"
        return f"{said})"

    def save(self, run_dir: str | os.PathLike) -> None:
        """Write `result.json`."""
        files.write_text(
            pathlib.Path(run_dir) / RESULT_FILE,
            files.to_json(dataclasses.asdict(self)),
        )


def final_result(run_dir: str | os.PathLike) -> Result | None:
    """Read `result.json`, if it describes the end of the run's training.

    Returns:
        The result; None if the training has not ended or has continued since,
        or if its weights are missing or have changed.

    Raises:
        UserError: If the weights are damaged, and there are no checkpoints to
            use instead.
    """
    run_dir = pathlib.Path(run_dir)
    if not (run_dir / FINAL_FILE).exists():
        return None
    try:
        fields = files.from_json((run_dir / RESULT_FILE).read_text("utf-8"))
        fields["checkpoints"] = tuple(fields["checkpoints"])
        result = Result(**fields)
        result.sentence()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning(
            "Skipping %s, which cannot be read (%s).",
            run_dir / RESULT_FILE,
            type(error).__name__,
        )
        return None
    kept = list_checkpoints(run_dir)
    if kept and step_of(kept[-1]) != result.step:
        return None
    path = run_dir / FINAL_FILE
    if result.weights == files.checksum(path):
        return result
    if not kept:
        raise UserError(
            f"{path} has changed since it was written, and there are no "
            "checkpoints to use instead; restore it from a copy."
        )
    logger.warning(
        "Skipping %s, which has changed since it was written, so translations "
        "may differ from before.",
        path,
    )
    return None
