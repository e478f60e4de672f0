"""Ends a training: keeps the better weights, and draws the curve."""

import logging
import shlex

import numpy as np

from keras_transformer.config import UserError
from keras_transformer.machine import files
from keras_transformer.runs import averaging, history, layout, lock
from keras_transformer.runs.averaging import (
    AVERAGE,
    BEST,
    LAST,
    Chosen,
    final_result,
)
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    Progress,
    Standing,
    find_best,
    newest_undamaged,
)
from keras_transformer.training.request import Session
from keras_transformer.training.validation import Validator

logger = logging.getLogger("keras_transformer")


def finish(
    session: Session,
    validator: Validator,
    last: list[np.ndarray],
    standing: Standing,
) -> None:
    """Keep the better of the averaged and the last weights; draw the curve.

    If they were compared already, nothing is written. In a short training an
    average reaches back to early weights, which spoils the result. With
    `patience`, the weights of the best validation are a third choice.

    Args:
        session: The training, with at least one checkpoint.
        validator: Measures the weights of its model, which are replaced.
        last: The weights that the training ended with.
        standing: Knows the best validation, if `patience` looked for it.
    """
    run, run_dir = session.run, session.run_dir
    lock.check(run_dir)
    result = final_result(run_dir)
    chosen = averaging.choose_average(run_dir, run)
    # A later session may ask for another `average`.
    if result is None or result.averaged not in (0, chosen.averaged):
        _compare(session, validator, last, standing, chosen)
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


def _compare(
    session: Session,
    validator: Validator,
    last: list[np.ndarray],
    standing: Standing,
    chosen: Chosen,
) -> None:
    """Write the best after validation, or the average if that fails."""
    run, run_dir, recipe = session.run, session.run_dir, session.run.training
    averaged = chosen.load(run, purpose="Validating")
    names = chosen.checkpoints
    averages = chosen.averages
    newest, state = newest_undamaged(run_dir, 1)[0]
    noted = Progress.of(state)
    weights = {LAST: last, AVERAGE: averaged.get_weights()}
    made_of = {LAST: (newest.name,), AVERAGE: names}
    figures = {}
    if noted.figures:
        figures[LAST] = noted.figures
        if len(names) == 1:  # They are the same.
            figures[AVERAGE] = noted.figures
    best = find_best(run_dir, standing) if recipe.patience else None
    if best and best[1].step != noted.step:  # Else they are one of the two.
        path, progress = best
        averaged.load_weights(path / WEIGHTS_FILE)
        weights[BEST], made_of[BEST] = averaged.get_weights(), (path.name,)
        if progress.figures:
            figures[BEST] = progress.figures
    called = {LAST: "last weights", AVERAGE: averages, BEST: "best weights"}
    for which in [x for x in weights if x not in figures]:
        validator.model.set_weights(weights[which])
        if (found := validator.measure(called[which])) is None:
            break
        figures[which] = found
    by = recipe.patience_on if recipe.patience else "loss"
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
    result = Chosen(
        step=noted.step,
        better=better,
        averages=averages,
        checkpoints=made_of[better],
        validation=figures,
        weights=files.checksum(path),
        by=by,
        averaged=len(names),
        run_dir=run_dir,
        is_final=True,
    )
    result.save()
    logger.info("Wrote %s, the %s.", path, result.sentence())
