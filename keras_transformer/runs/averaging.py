"""Loads the weights that a run ends with: averages of checkpoints (6.1)."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.config import UserError
from keras_transformer.model import Transformer
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    list_checkpoints,
    newest_undamaged,
    read_moving_average,
)
from keras_transformer.runs.layout import FINAL_FILE
from keras_transformer.runs.result import final_result
from keras_transformer.runs.run_config import RunConfig

logger = logging.getLogger("keras_transformer")


def load_model(
    run_dir: str | os.PathLike, average: int | None = None
) -> Transformer:
    """Build a run's model with the weights to translate with.

    Args:
        run_dir: The run directory.
        average: Newest checkpoints to average (section 6.1), at least 1. If
            there are fewer, all are taken, and the log says so. None takes the
            weights that validation found better at the end of the training,
            as `result.json` says. If the training has not ended, None takes
            the moving average in the newest checkpoint of a run with `--ema`,
            or averages as many checkpoints as the recipe does.

    Returns:
        The model, in float32 and without an optimizer. One line of the log
        says which weights it has.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights that
            can be read.
    """
    if average is None and (result := final_result(run_dir)):
        logger.info("Taking the %s.", result.sentence())
    elif average is None and is_slim(run_dir):
        logger.info("Taking the weights that the training ended with.")
    else:
        return load_average(run_dir, average)
    model = _fresh_model(run_dir)
    path = pathlib.Path(run_dir) / FINAL_FILE
    try:
        model.load_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}); restore it, or "
            "ask for an average of checkpoints with `average`."
        ) from None
    return model


def load_average(
    run_dir: str | os.PathLike,
    average: int | None = None,
    purpose: str = "Taking",
) -> Transformer:
    """Load the average of checkpoints, even if validation preferred others.

    Args:
        run_dir: As in `load_model`, like the next one.
        average: The number of checkpoints.
        purpose: What happens to the weights, as the log begins its line.
    """
    recipe = RunConfig.load(run_dir).training
    paths = averaged_checkpoints(run_dir, average)
    model = _fresh_model(run_dir)
    if average is None and recipe.ema:
        logger.info(
            "%s the moving average of the weights in %s.", purpose, paths[-1]
        )
        model.set_weights(read_moving_average(paths[-1]))
        return model
    wanted = average or recipe.average
    if len(paths) < wanted:
        logger.warning(
            "Averaging only %d checkpoint%s instead of %d: %s has no more.",
            len(paths),
            "s" if len(paths) > 1 else "",
            wanted,
            run_dir,
        )
    else:
        logger.info("%s the %s.", purpose, average_of(len(paths)))
    try:
        average_weights(model, paths)
    except FileNotFoundError:  # A training has just removed the oldest.
        average_weights(model, averaged_checkpoints(run_dir, average))
    return model


def _fresh_model(run_dir: str | os.PathLike) -> Transformer:
    run = RunConfig.load(run_dir)
    return Transformer(**dataclasses.asdict(run.model))


def checkpoint_names(
    run_dir: str | os.PathLike, average: int | None = None
) -> list[str]:
    """Name the checkpoints that `load_model` takes its weights from.

    Oldest first; none if only the final weights are left.

    Raises:
        UserError: As in `load_model`.
    """
    if average is None and (result := final_result(run_dir)):
        return list(result.checkpoints)
    if average is None and is_slim(run_dir):
        return []
    return [path.name for path in averaged_checkpoints(run_dir, average)]


def is_slim(run_dir: str | os.PathLike) -> bool:
    """Return whether only the final weights of a run are left."""
    has_final = (pathlib.Path(run_dir) / FINAL_FILE).exists()
    return has_final and not list_checkpoints(run_dir)


def average_of(count: int) -> str:
    """Name the average of the newest checkpoints."""
    if count == 1:
        return "last checkpoint"
    return f"average of the last {count} checkpoints"


def averaged_checkpoints(
    run_dir: str | os.PathLike, average: int | None = None
) -> list[pathlib.Path]:
    """List the folders of the checkpoints to average, oldest first.

    They are the newest ones, as many as `average` or else the recipe says.

    Raises:
        UserError: As in `load_model`.
    """
    recipe = RunConfig.load(run_dir).training
    if average is None:
        average = 1 if recipe.ema else recipe.average
    if average < 1:
        raise UserError(
            f"Expected at least 1 checkpoint to average, received {average}."
        )
    if not list_checkpoints(run_dir):
        if is_slim(run_dir):
            raise UserError(
                f"{run_dir} has no checkpoints any more, only the weights its "
                "training ended with; leave out `average` to take them."
            )
        raise UserError(
            f"{run_dir} has no checkpoint yet; train until it has written one."
        )
    return [path for path, _ in newest_undamaged(run_dir, average)]


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
