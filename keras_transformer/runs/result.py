"""What a training ended with: which weights, and what validation says of them.

A short run's average reaches back to weights that knew little, so that the
last ones may be better. Both are validated when a training ends.
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

AVERAGE, LAST = "average", "last"

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Result:
    """What `final.weights.h5` holds, and why.

    Attributes:
        step: Updates of the whole training.
        better: `"average"` or `"last"`: the weights in the file.
        averages: What the average is of, such as "last 5 checkpoints".
        checkpoints: Names of the checkpoints that the better one is made of.
        validation: For each of the two its figures on the validation set:
            `loss`, `perplexity`, `token_accuracy` and `bleu`, of a sample
            decoded greedily. What could not be validated has none.
        weights: CRC-32 of `final.weights.h5`.
    """

    step: int
    better: str
    averages: str
    checkpoints: tuple[str, ...]
    validation: Mapping[str, Mapping[str, float]]
    weights: int | None

    def sentence(self) -> str:
        """Name the weights, and why they were taken."""
        names = {AVERAGE: self.averages, LAST: "last weights"}
        if not self.validation.keys() >= {AVERAGE, LAST}:
            return f"{names[self.better]} (could not be validated)"
        other = AVERAGE if self.better == LAST else LAST
        loss, other_loss = (
            self.validation[which]["loss"] for which in (self.better, other)
        )
        if len(self.checkpoints) == 1 and loss == other_loss:
            return f"{names[self.better]} (validation loss {loss:.3f})"
        return (
            f"{names[self.better]} (validation loss {loss:.3f}; "
            f"{names[other]}: {other_loss:.3f})"
        )

    def save(self, run_dir: str | os.PathLike) -> None:
        """Write `result.json`."""
        files.write_text(
            pathlib.Path(run_dir) / RESULT_FILE,
            files.to_json(dataclasses.asdict(self)),
        )


def final_result(run_dir: str | os.PathLike) -> Result | None:
    """Read `result.json`, if it tells of the end of the run's training.

    Args:
        run_dir: The run directory.

    Returns:
        None where the training has not ended, or has gone on since, or the
        weights that it tells of are not there as they were written.

    Raises:
        UserError: If those are damaged, and there are no checkpoints to take
            in their place.
    """
    run_dir = pathlib.Path(run_dir)
    if not (run_dir / FINAL_FILE).exists():
        return None
    try:
        text = (run_dir / RESULT_FILE).read_text("utf-8")
        fields = files.from_json(text)
        result = Result(**fields)
        result = dataclasses.replace(
            result, checkpoints=tuple(result.checkpoints)
        )
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
            f"{path} is not as it was written, and there are no checkpoints to "
            "take in its place; restore it from a copy."
        )
    logger.warning("Skipping %s, which has changed since it was written.", path)
    return None
