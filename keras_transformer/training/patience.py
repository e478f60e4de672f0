"""Early stopping: a training ends when its validations no longer improve.

How the validations stand is in each checkpoint, and the best weights lie beside
them. So a session that resumes after a kill counts as the killed one did.
"""

from keras_transformer.config import TrainingConfig
from keras_transformer.runs.checkpoints import Standing


class Patience:
    """Counts validations since the best one.

    Only weights that are kept can be the best: the count begins with the first
    validation after `patience` was given.

    Attributes:
        standing: How the validations stand now.
    """

    def __init__(
        self, recipe: TrainingConfig, standing: Standing | None
    ) -> None:
        self.most, self.on = recipe.patience, recipe.patience_on
        self.every = recipe.validation_steps
        self.standing = Standing(on=self.on)
        if standing and standing.on == self.on:
            self.standing = standing

    @property
    def is_over(self) -> bool:
        """Whether the training ends, or has ended, by now."""
        return self.most is not None and self.standing.waited >= self.most

    def count(self, step: int, value: float) -> bool:
        """Count a validation; return whether its weights are the best.

        One off the interval comes from the end of a session: without an
        interruption there would be none.
        """
        if self.most is None or step % self.every:
            return False
        value = float(f"{value:.6g}")  # The last bits are no improvement.
        best = self.standing.value
        is_better = value > best if self.on == "bleu" else value < best
        if is_better or self.standing.best is None:
            self.standing = Standing(step, value, on=self.on)
            return True
        waited = self.standing.waited + 1
        self.standing = self.standing._replace(waited=waited)
        return False

    def reason(self) -> str:
        """Say why the training ends, as the beginning of a sentence."""
        best, value, waited, on = self.standing
        what = {"loss": "loss", "bleu": "BLEU"}[on]
        return (
            f"No better validation {what} than {value:.5g}, of update {best}, "
            f"in {waited} validation{'s' if waited > 1 else ''}"
        )
