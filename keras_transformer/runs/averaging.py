"""Loads the weights that a run ends with: averages of checkpoints (6.1)."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.model import Transformer
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    list_checkpoints,
    newest_undamaged,
    read_moving_average,
)
from keras_transformer.runs.layout import CHECKPOINTS, FINAL_FILE
from keras_transformer.runs.result import LAST, final_result
from keras_transformer.runs.run_config import RunConfig

# Of reading weights that a running training may replace.
_ATTEMPTS = 3

logger = logging.getLogger("keras_transformer")


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

    def load_into(self, model: keras.Model) -> None:
        """Set a model to these weights."""
        folder = self.run_dir / CHECKPOINTS
        paths = [folder / name for name in self.checkpoints]
        if self.is_final:
            _load_final(model, self.run_dir / FINAL_FILE)
        elif self.ema:
            model.set_weights(read_moving_average(paths[-1]))
        else:
            average_weights(model, paths)

    def has_gone(self) -> bool:
        """Return whether a training has replaced the final weights since."""
        path = self.run_dir / FINAL_FILE
        return self.is_final and (
            not path.exists() or files.checksum(path) != self.checksum
        )


def choose(run_dir: str | os.PathLike, average: int | None = None) -> Chosen:
    """Choose a run's weights to translate with.

    Args:
        run_dir: The run directory.
        average: Newest checkpoints to average (section 6.1), at least 1. If
            there are fewer, all are taken, and the log says so. None takes the
            weights that validation found better at the end of the training,
            as `result.json` says. If the training has not ended, None takes
            the moving average in the newest checkpoint of a run with `--ema`,
            or averages as many checkpoints as the recipe does.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights.
    """
    run_dir = pathlib.Path(run_dir)
    ema = RunConfig.load(run_dir).training.ema
    if average is None and (result := final_result(run_dir)):
        return Chosen(
            run_dir,
            result.checkpoints,
            result.weights,
            result.sentence(),
            is_final=True,
            ema=None if result.better == LAST else ema,
        )
    if average is None and is_slim(run_dir):
        checksum = files.checksum(run_dir / FINAL_FILE)
        said = "weights that the training ended with"
        return Chosen(run_dir, (), checksum, said, is_final=True, ema=ema)
    return _choose_average(run_dir, average)


def _choose_average(run_dir: pathlib.Path, average: int | None) -> Chosen:
    found = _averaged(run_dir, average)
    names = tuple(path.name for path, _ in found)
    newest, state = found[-1]
    ema = RunConfig.load(run_dir).training.ema if average is None else None
    said = average_of(len(names))
    if ema:
        said = f"moving average of the weights in {newest}"
    return Chosen(run_dir, names, state["files"][WEIGHTS_FILE], said, ema=ema)


def load(
    run_dir: str | os.PathLike, average: int | None = None
) -> tuple[Transformer, Chosen]:
    """Build a run's model with the weights to translate with.

    The arguments are those of `choose`.

    Returns:
        The model, in float32 and without an optimizer, and the weights that it
        has, which one line of the log names.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights that
            can be read.
    """
    for _ in range(_ATTEMPTS):
        chosen = choose(run_dir, average)
        if model := _loaded(chosen, average, "Taking"):
            return model, chosen
    raise _is_changing(run_dir)


def load_model(
    run_dir: str | os.PathLike, average: int | None = None
) -> Transformer:
    """Return the model alone of `load`."""
    return load(run_dir, average)[0]


def load_average(
    run_dir: str | os.PathLike,
    average: int | None = None,
    purpose: str = "Taking",
) -> Transformer:
    """Load the average of checkpoints, even if validation preferred others.

    Args:
        run_dir: As in `choose`, like the next one.
        average: The number of checkpoints.
        purpose: What happens to the weights, as the log begins its line.
    """
    for _ in range(_ATTEMPTS):
        chosen = _choose_average(pathlib.Path(run_dir), average)
        if model := _loaded(chosen, average, purpose):
            return model
    raise _is_changing(run_dir)


def _loaded(
    chosen: Chosen, average: int | None, purpose: str
) -> Transformer | None:
    """Load what was chosen; None if a training has removed it meanwhile."""
    run = RunConfig.load(chosen.run_dir)
    wanted = average or run.training.average
    count = len(chosen.checkpoints)
    if not (chosen.is_final or chosen.ema) and count < wanted:
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
    try:
        chosen.load_into(model)
    except FileNotFoundError:
        return None
    return None if chosen.has_gone() else model


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


def _is_changing(run_dir: str | os.PathLike) -> UserError:
    return UserError(
        f"The weights in {run_dir} changed each time they were read; wait "
        "until the training has written its files, then try again."
    )


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
        UserError: As in `choose`.
    """
    return [path for path, _ in _averaged(run_dir, average)]


def _averaged(
    run_dir: str | os.PathLike, average: int | None
) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    """List the folders to average, each with its `state.json`."""
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
    return newest_undamaged(run_dir, average)


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
