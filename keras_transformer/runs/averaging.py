"""Loads the weights that a run ends with: averages of checkpoints (6.1).

A short run's average reaches back to weights that knew little, so the last
weights may be better. Both are validated when a training ends, and the result
notes what validation said of them.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.model import Transformer
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    list_checkpoints,
    newest_undamaged,
    step_of,
)
from keras_transformer.runs.layout import CHECKPOINTS, FINAL_FILE, RESULT_FILE
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.runs.weights import Chosen, Runs, Weights

# Of reading weights that a running training may replace.
_ATTEMPTS = 3

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
    weights: int
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


def choose(
    run_dir: str | os.PathLike,
    average: int | None = None,
    run: RunConfig | None = None,
) -> Chosen:
    """Choose a run's weights to translate with.

    Args:
        run_dir: The run directory.
        average: Newest checkpoints to average (section 6.1), at least 1. If
            there are fewer, all are taken, and the log says so. None takes the
            weights that validation found better at the end of the training,
            as `result.json` says. If the training has not ended, None
            averages as many checkpoints as the recipe does.
        run: The configuration, if it is read already.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights.
    """
    run_dir = pathlib.Path(run_dir)
    run = run or RunConfig.load(run_dir)
    if average is None and (result := final_result(run_dir)):
        return Chosen(
            run_dir,
            result.checkpoints,
            result.weights,
            result.sentence(),
            is_final=True,
        )
    if average is None and is_slim(run_dir):
        checksum = files.checksum(run_dir / FINAL_FILE)
        said = "weights that the training ended with"
        return Chosen(run_dir, (), checksum, said, is_final=True)
    return choose_average(run_dir, average, run)


def choose_average(
    run_dir: pathlib.Path, average: int | None, run: RunConfig
) -> Chosen:
    """Choose checkpoints as `choose`, even if validation preferred others."""
    if not list_checkpoints(run_dir):
        if is_slim(run_dir):
            raise UserError(
                f"{run_dir} has no checkpoints any more, only the weights its "
                "training ended with; leave out `average` to take them."
            )
        raise UserError(
            f"{run_dir} has no checkpoint yet; train until it has written one."
        )
    found = newest_undamaged(run_dir, average or run.training.average)
    names = tuple(path.name for path, _ in found)
    _, state = found[-1]
    checksum = state["files"][WEIGHTS_FILE]
    return Chosen(run_dir, names, checksum, average_of(len(names)))


def choose_all(runs: Runs, weights: Weights) -> Weights:
    """Choose the weights of several runs, as `choose` does that of one."""
    chosen = [choose(path, weights.average, run) for path, run in runs]
    return dataclasses.replace(weights, chosen=tuple(chosen))


def load(
    run_dir: str | os.PathLike,
    average: int | None = None,
    run: RunConfig | None = None,
) -> tuple[Transformer, Chosen]:
    """Build a run's model with the weights to translate with.

    Args:
        run_dir: As in `choose`, like the next two.
        average: Newest checkpoints to average.
        run: The configuration, if it is read already.

    Returns:
        The model, in float32 and without an optimizer, and the weights that it
        has, which one line of the log names.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights that
            can be read.
    """
    run_dir = pathlib.Path(run_dir)
    run = run or RunConfig.load(run_dir)
    for _ in range(_ATTEMPTS):
        chosen = choose(run_dir, average, run)
        with contextlib.suppress(FileNotFoundError):
            return load_chosen(chosen, run, average), chosen
    raise UserError(
        f"The weights in {run_dir} changed each time they were read; wait "
        "until the training has written its files, then try again."
    )


def load_chosen(
    chosen: Chosen,
    run: RunConfig,
    average: int | None = None,
    purpose: str = "Taking",
) -> Transformer:
    """Build a run's model with the weights that were chosen.

    Args:
        chosen: The weights.
        run: The configuration.
        average: As in `choose`.
        purpose: What happens to the weights, as the log begins its line.

    Raises:
        FileNotFoundError: If a training has replaced them meanwhile.
        UserError: If they cannot be read.
    """
    wanted = average or run.training.average
    count = len(chosen.checkpoints)
    if not chosen.is_final and count < wanted:
        logger.warning(
            "Averaging only %d checkpoint%s instead of %d: %s has no more.",
            count,
            "s" if count > 1 else "",
            wanted,
            chosen.run_dir,
        )
    else:
        logger.info("%s the %s.", purpose, chosen.said)
    model = Transformer(**dataclasses.asdict(run.model))
    final = chosen.run_dir / FINAL_FILE
    folder = chosen.run_dir / CHECKPOINTS
    paths = [folder / name for name in chosen.checkpoints]
    if chosen.is_final:
        _load_final(model, final)
        if files.checksum(final) != chosen.checksum:
            raise FileNotFoundError(final)
    else:
        average_weights(model, paths)
    return model


def _load_final(model: keras.Model, path: pathlib.Path) -> None:
    try:
        model.load_weights(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}); restore it, or "
            "ask for an average of checkpoints with `average`."
        ) from None


def is_slim(run_dir: str | os.PathLike) -> bool:
    """Return whether only the final weights of a run are left."""
    has_final = (pathlib.Path(run_dir) / FINAL_FILE).exists()
    return has_final and not list_checkpoints(run_dir)


def average_of(count: int) -> str:
    """Name the average of the newest checkpoints."""
    if count == 1:
        return "last checkpoint"
    return f"average of the last {count} checkpoints"


def average_weights(model: keras.Model, paths: Sequence[pathlib.Path]) -> None:
    """Set a model's weights to the mean of checkpoints (section 6.1)."""
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for path in paths:
        model.load_weights(path / WEIGHTS_FILE)
        for total, weight in zip(sums, model.get_weights(), strict=True):
            total += weight
    model.set_weights(
        [
            (total / len(paths)).astype(weight.dtype)
            for total, weight in zip(sums, model.weights, strict=True)
        ]
    )
