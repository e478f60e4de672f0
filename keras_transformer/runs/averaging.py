"""Chooses and loads the weights of a run: averages of checkpoints (6.1).

A short run's average reaches back to weights that knew little, so the last
weights may be better. Both are validated when a training ends; `result.json`
says which are in `final.weights.h5`, and what validation found.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_transformer.config import ModelConfig, UserError, logger
from keras_transformer.machine import extras, files
from keras_transformer.model import Transformer
from keras_transformer.presets import parameters
from keras_transformer.runs import layout
from keras_transformer.runs.checkpoints import WEIGHTS_FILE, newest_undamaged
from keras_transformer.runs.layout import FINAL_FILE, RESULT_FILE
from keras_transformer.runs.run_config import RunConfig

AVERAGE, LAST, BEST = "average", "last", "best"


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The weights of a run to take; `result.json` keeps those of its end."""

    # Names of those behind them, oldest first; none if only the final weights
    # are left.
    checkpoints: tuple[str, ...]
    # CRC-32 of the file that they, or the newest of them, are in.
    checksum: int
    averaged: int = 0  # Checkpoints in the average; 0 if not noted.
    # Updates of the whole training; 0 if it did not end, or left no
    # `result.json`: then the fields below say nothing.
    step: int = 0
    better: str = AVERAGE  # Which these are.
    # `loss`, `perplexity`, `token_accuracy` and `bleu`, of a sample decoded
    # greedily, of the average, the last and, with `patience`, the best weights,
    # if they could be validated.
    validation: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    by: str = "loss"  # Or "bleu": the figure that decided.
    run_dir: pathlib.Path = pathlib.Path()  # The file does not name it.

    def __str__(self) -> str:
        """Identify them: other weights have another text."""
        return " ".join([*self.checkpoints, f"{self.checksum:08x}"])

    def is_damaged(self) -> bool:
        """Whether `final.weights.h5` is no longer as it was written."""
        return files.checksum(self.run_dir / FINAL_FILE) != self.checksum

    def sentence(self) -> str:
        """Name the weights, and why they were taken."""
        if not self.checkpoints:
            return "weights that the training ended with"
        count = len(self.checkpoints)
        average = f"average of the last {count} checkpoints"
        said = {
            AVERAGE: average if count > 1 else "last checkpoint",
            LAST: "last weights",
            BEST: "weights of the best validation",
        }[self.better]
        if not self.validation:
            return said
        figures = (
            f"{which} {figures[self.by]:.4g}"
            for which, figures in self.validation.items()
        )
        return f"{said} (validation {self.by}: {', '.join(figures)})"

    def save(self) -> None:
        """Write `result.json`."""
        fields = dataclasses.asdict(self)
        run_dir = fields.pop("run_dir")
        fields["weights"] = fields.pop("checksum")
        files.write_text(run_dir / RESULT_FILE, files.to_json(fields))

    def load(self, run: RunConfig) -> Transformer:
        """Build the run's model, in float32, with these weights."""
        logger.info("Taking the %s.", self.sentence())
        extras.check_keras()
        folder = self.run_dir / layout.CHECKPOINTS
        # Those to average; after the training's end that is done.
        kept = [] if self.step else [folder / x for x in self.checkpoints]
        path = kept[-1] / WEIGHTS_FILE if kept else self.run_dir / FINAL_FILE
        try:
            check_size(run.model, path.stat().st_size, path)
            shape = dataclasses.asdict(run.model)
            model = Transformer(**shape, dtype="float32")
            if kept:
                average_weights(model, kept)
                return model
            model.load_weights(path)
            if not self.is_damaged():
                return model
            reason = "it is not as it was written"
        except (OSError, ValueError, KeyError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"The weights in {self.run_dir} cannot be read ({reason}); try "
            "again if a training has just replaced them, restore them, or ask "
            "for an average of checkpoints with `average`."
        ) from None


def check_size(model: ModelConfig, size: int, path: object) -> None:
    """Refuse a model much larger than its weights before it is built."""
    if (count := parameters(model)) > size / 2:  # In float32: a quarter.
        raise UserError(
            f"The settings describe a model of {count:,} parameters, but "
            f"{path} is too small to hold even half of them; restore "
            "config.json or the weights."
        )


def final_result(run_dir: str | os.PathLike) -> Chosen | None:
    """Read `result.json`; None while a training has not ended or goes on."""
    run_dir = pathlib.Path(run_dir)
    path = run_dir / RESULT_FILE
    if not path.exists() or not (run_dir / FINAL_FILE).exists():
        return None
    kept = layout.list_checkpoints(run_dir)
    try:
        fields = files.from_json(path.read_text("utf-8"))
        fields.pop("averages", None)  # Of earlier versions.
        of_file = tuple(fields.pop("checkpoints")), fields.pop("weights")
        result = Chosen(*of_file, **fields, run_dir=run_dir)
    except (OSError, ValueError, TypeError, KeyError) as error:
        said = f"{path} cannot be read ({error}); restore or remove it."
        if not kept:
            raise UserError(said) from None
        logger.warning("%s Its checkpoints count.", said)
        return None
    return None if kept and layout.step_of(kept[-1]) != result.step else result


def choose(
    run_dir: pathlib.Path, run: RunConfig, average: int | None = None
) -> Chosen:
    """Choose a run's weights to translate with.

    These are the mean of the `average` newest checkpoints (section 6.1), by
    default what validation found better at the end of the training or, if that
    has not ended, the mean of as many as the recipe says.
    """
    if average is None and (result := final_result(run_dir)):
        return result
    if is_slim(run_dir):
        if average is None:
            checksum = files.checksum(run_dir / FINAL_FILE)
            return Chosen((), checksum, run_dir=run_dir)
        raise UserError(
            f"{run_dir} has no checkpoints any more, only the weights its "
            "training ended with; leave out `average` to take them."
        )
    if not layout.list_checkpoints(run_dir):
        why = "has no checkpoint yet; train until it has written one"
        raise UserError(f"{run_dir} {why}.")
    wanted = average or run.training.average
    newest = newest_undamaged(run_dir, wanted)
    if len(newest) < wanted:
        said = "Averaging %d of the last %d checkpoints: %s has no more."
        logger.warning(said, len(newest), wanted, run_dir)
    return Chosen(
        tuple(path.name for path, _ in newest),
        newest[-1][1]["files"][WEIGHTS_FILE],
        averaged=len(newest),
        run_dir=run_dir,
    )


def load(
    run_dir: str | os.PathLike,
    average: int | None = None,
    run: RunConfig | None = None,
) -> tuple[Transformer, Chosen]:
    """Build a run's model without an optimizer, with `choose`'s weights."""
    run_dir = pathlib.Path(run_dir)
    run = run or RunConfig.load(run_dir)
    chosen = choose(run_dir, run, average)
    return chosen.load(run), chosen


def is_slim(run_dir: str | os.PathLike) -> bool:
    """Return whether only the final weights of a run are left."""
    has_final = (pathlib.Path(run_dir) / FINAL_FILE).exists()
    return has_final and not layout.list_checkpoints(run_dir)


def average_weights(model: keras.Model, paths: Sequence[pathlib.Path]) -> None:
    """Set a model's weights to the mean of checkpoints (section 6.1)."""
    sums = [np.zeros(weight.shape, "float64") for weight in model.weights]
    for path in paths:
        model.load_weights(path / WEIGHTS_FILE)
        for total, weight in zip(sums, model.get_weights(), strict=True):
            total += weight
    model.set_weights([total / len(paths) for total in sums])
