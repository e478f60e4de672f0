"""Early stopping: a training ends when its validations no longer improve.

Everything that decides is in the run directory: the figures in the history, and
the best weights beside the checkpoints. So a session that resumes after a kill
counts as the killed one did.
"""

import logging
import os
import pathlib
from typing import NamedTuple

import keras

from keras_transformer.config import TrainingConfig
from keras_transformer.machine import files
from keras_transformer.runs import history, lock
from keras_transformer.runs.checkpoints import (
    RESUMABLE,
    Progress,
    is_damaged,
    list_best,
    list_checkpoints,
    save_best,
    step_of,
)

logger = logging.getLogger("keras_transformer")


class Standing(NamedTuple):
    """The result of the validations up to an update.

    Attributes:
        best: The update of the best one; None before there is one.
        value: Its figure.
        waited: How many came after it.
    """

    best: int | None = None
    value: float = 0.0
    waited: int = 0


class Patience:
    """Counts validations since the best one, and keeps its weights.

    Only weights that are kept can be the best: the count begins with the first
    validation after `patience` was given.

    Args:
        run_dir: The run directory.
        recipe: Gives `patience`, `patience_on` and `validation_steps`.

    Attributes:
        on: `"loss"` or `"bleu"`, whichever is compared.
    """

    def __init__(
        self, run_dir: str | os.PathLike, recipe: TrainingConfig
    ) -> None:
        self.run_dir = run_dir
        self.most = recipe.patience
        self.on = recipe.patience_on
        self.every = recipe.validation_steps

    def standing(self, step: int) -> Standing:
        """Read how the validations stand after an update."""
        kept = {step_of(path) for path in list_best(self.run_dir)}
        found = Standing()
        for row in history.read_history(self.run_dir):
            at, value = int(row["step"]), row.get(f"validation_{self.on}")
            if at > step or value is None:
                continue
            if at in kept and self._is_better(value, found):
                found = Standing(at, value)
            # A validation off the interval comes from the end of a session:
            # without interruption there would be none.
            elif found.best and at % self.every == 0:
                found = found._replace(waited=found.waited + 1)
        return found

    def _is_better(self, value: float, than: Standing) -> bool:
        if than.best is None:
            return True
        return value > than.value if self.on == "bleu" else value < than.value

    def is_over(self, step: int) -> bool:
        """Return whether the training ends, or has ended, by an update."""
        return self.most is not None and self.standing(step).waited >= self.most

    def keep(self, model: keras.Model, now: Progress, value: float) -> None:
        """Keep a model's weights if their validation is the best so far.

        Called before the history gets its row: a validation that has one is
        never done again.

        Args:
            model: Holds the weights that were validated.
            now: The progress at the validation.
            value: The loss or BLEU, whichever is compared.
        """
        if now.step % self.every or self.is_over(now.step):
            return
        # The history rounds: `forget` drops weights that tie with the best.
        if self._is_better(value, self.standing(now.step - 1)):
            lock.check(self.run_dir)
            save_best(self.run_dir, model, now)

    def forget(self, step: int) -> None:
        """Remove weights that neither the end nor a resumed session needs."""
        resumable = list_checkpoints(self.run_dir)[-RESUMABLE:]
        steps = [step, *(step_of(path) for path in resumable)]
        needed = {self.standing(at).best for at in steps}
        for path in list_best(self.run_dir):
            if step_of(path) not in needed:
                files.remove(path)

    def best_weights(self, step: int) -> pathlib.Path | None:
        """Find the folder of the best weights, unless it is damaged."""
        best = self.standing(step).best
        for path in list_best(self.run_dir):
            if step_of(path) != best:
                continue
            if not is_damaged(path):
                return path
            logger.warning("Skipping the best weights, damaged: %s.", path)
        return None

    def reason(self, step: int) -> str:
        """Say why the training ends, as the beginning of a sentence."""
        found = self.standing(step)
        what = {"loss": "loss", "bleu": "BLEU"}[self.on]
        return (
            f"No better validation {what} than {found.value:.5g}, of update "
            f"{found.best}, in {found.waited} "
            f"validation{'s' if found.waited > 1 else ''}"
        )
