"""The result of a training: its weights, and what validation says of them.

A short run's average reaches back to weights that knew little, so the last
weights may be better. Both are validated when a training ends.
"""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.runs.checkpoints import list_checkpoints, step_of
from keras_transformer.runs.layout import FINAL_FILE, RESULT_FILE

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
