"""Ends a training: keeps the better weights, and draws the curve."""

import logging
import pathlib
import shlex

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.runs import averaging, history, layout, lock
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    list_checkpoints,
    step_of,
)
from keras_transformer.runs.result import (
    AVERAGE,
    BEST,
    LAST,
    Result,
    final_result,
)
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training.patience import Patience
from keras_transformer.training.validation import Validator

logger = logging.getLogger("keras_transformer")


def finish(
    run: RunConfig,
    run_dir: pathlib.Path,
    validator: Validator,
    last: list[np.ndarray],
    patience: Patience | None,
) -> None:
    """Keep the better of the averaged and the last weights; draw the curve.

    If that is done already, it writes nothing. In a short training an average
    reaches back to early weights, which spoils the result. With `patience`,
    the weights of the best validation are a third choice.

    Args:
        run: The configuration.
        run_dir: The run directory, with at least one checkpoint.
        validator: Measures the weights of its model, which are replaced.
        last: The weights that the training ended with.
        patience: Knows the best validation; None if not asked for.
    """
    lock.check(run_dir)
    result = final_result(run_dir)
    if result is None or result.averages != _averages(
        run, averaging.averaged_checkpoints(run_dir)
    ):
        _compare(run, run_dir, validator, last, patience)
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


def _averages(run: RunConfig, averaged: list[pathlib.Path]) -> str:
    """Name the average that the recipe asks for."""
    if run.training.ema:
        return "moving average of the weights"
    return averaging.average_of(len(averaged))


def _compare(
    run: RunConfig,
    run_dir: pathlib.Path,
    validator: Validator,
    last: list[np.ndarray],
    patience: Patience | None,
) -> None:
    """Validate all weights, then write the best of them and the reason.

    If that fails, write the average, as in the paper.
    """
    step = step_of(list_checkpoints(run_dir)[-1])
    paths = averaging.averaged_checkpoints(run_dir)
    names = [path.name for path in paths]
    averaged = averaging.load_average(run_dir, purpose="Validating")
    averages = _averages(run, paths)
    called = {LAST: "last weights", AVERAGE: averages, BEST: "best weights"}
    weights = {LAST: last, AVERAGE: averaged.get_weights()}
    made_of = {LAST: names[-1:], AVERAGE: names}
    best = patience.best_weights(step) if patience else None
    if best and step_of(best) != step:  # Else they are one of the two.
        averaged.load_weights(best / WEIGHTS_FILE)
        weights[BEST], made_of[BEST] = averaged.get_weights(), [best.name]
    figures = {}
    if validator.latest and not run.training.ema:  # Measured at the end.
        figures[LAST] = validator.latest._asdict()
    for which in weights:
        if which in figures:
            continue
        if which == AVERAGE and len(names) == 1 and not run.training.ema:
            figures[which] = figures[LAST]  # They are the same.
            continue
        validator.model.set_weights(weights[which])
        if (found := validator.measure(called[which])) is None:
            break
        figures[which] = found._asdict()
    by = patience.on if patience else "loss"
    better = AVERAGE
    if figures.keys() >= {AVERAGE, LAST}:
        # Among equals the average wins, as in the paper.
        order = [which for which in (AVERAGE, LAST, BEST) if which in figures]
        sign = -1 if by == "bleu" else 1
        better = min(order, key=lambda which: sign * figures[which][by])
    averaged.set_weights(weights[better])
    path = run_dir / layout.FINAL_FILE
    with files.whole(path) as partial:
        averaged.save_weights(partial)
    result = Result(
        step=step,
        better=better,
        averages=averages,
        checkpoints=tuple(made_of[better]),
        validation=figures,
        weights=files.checksum(path),
        by=by,
    )
    result.save(run_dir)
    logger.info("Wrote %s, the %s.", path, result.sentence())
