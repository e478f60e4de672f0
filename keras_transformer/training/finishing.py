"""The end of a training: average, compare, draw, say what is next."""

import logging
import pathlib
import shlex

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.runs import averaging, history, lock
from keras_transformer.runs.checkpoints import list_checkpoints, step_of
from keras_transformer.runs.layout import AVERAGED_FILE
from keras_transformer.runs.result import (
    AVERAGE,
    LAST,
    Result,
    final_result,
)
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.validation import Validator

logger = logging.getLogger("keras_transformer")


def finish(
    run: RunConfig,
    run_dir: pathlib.Path,
    validator: Validator,
    last: list[np.ndarray],
) -> None:
    """Keep the better of the averaged and the last weights; draw the curve.

    Where that is done already, nothing is written.

    An average reaches back to weights of a long time ago where a training was
    short, and spoils the result.

    Args:
        run: The configuration.
        run_dir: The run directory, with at least one checkpoint.
        validator: Measures the weights of its model, which are replaced.
        last: The weights that the training ended with.
    """
    lock.check(run_dir)
    result = final_result(run_dir)
    if result is None or result.averages != _averages(run, run_dir):
        _compare(run, run_dir, validator, last)
        try:
            logger.info("Wrote %s.", history.draw(run_dir))
        except UserError as error:  # A picture is no reason to fail.
            logger.warning("Left out the learning curve: %s", error)
    logger.info(
        "Next: keras-transformer evaluate --run-dir %s, or keras-transformer "
        "translate --run-dir %s < FILE, or keras-transformer export --run-dir "
        "%s --output DIR",
        *[shlex.quote(str(run_dir))] * 3,
    )


def _averages(run: RunConfig, run_dir: pathlib.Path) -> str:
    """Name the average that the recipe asks for."""
    if run.training.ema:
        return "moving average of the weights"
    return averaging.average_of(len(averaging.averaged_checkpoints(run_dir)))


def _compare(
    run: RunConfig,
    run_dir: pathlib.Path,
    validator: Validator,
    last: list[np.ndarray],
) -> None:
    """Validate both, and write the better one with a word on why.

    Where that fails it is the average, as in the paper.
    """
    names = [path.name for path in averaging.averaged_checkpoints(run_dir)]
    averaged = averaging.load_average(run_dir)
    weights = {AVERAGE: averaged.get_weights(), LAST: last}
    averages = _averages(run, run_dir)
    figures = {}
    if validator.latest and not run.training.ema:  # At the end of training.
        figures[LAST] = validator.latest._asdict()
    for which, what in ((LAST, "last weights"), (AVERAGE, averages)):
        if which in figures:
            continue
        if which == AVERAGE and len(names) == 1 and not run.training.ema:
            figures[which] = figures[LAST]  # They are the same.
            continue
        validator.model.set_weights(weights[which])
        if (found := validator.measure(what)) is None:
            break
        figures[which] = found._asdict()
    # Of equal ones the average, as in the paper.
    better = AVERAGE
    if len(figures) == 2 and figures[LAST]["loss"] < figures[AVERAGE]["loss"]:
        better = LAST
    averaged.set_weights(weights[better])
    path = run_dir / AVERAGED_FILE
    with files.whole(path) as partial:
        averaged.save_weights(partial)
    result = Result(
        step=step_of(list_checkpoints(run_dir)[-1]),
        better=better,
        averages=averages,
        checkpoints=tuple(names if better == AVERAGE else names[-1:]),
        validation=figures,
        weights=files.checksum(path),
    )
    result.save(run_dir)
    logger.info("Wrote %s, the %s.", path, result.sentence())
