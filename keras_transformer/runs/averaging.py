"""Chooses and loads the weights of a run: averages of checkpoints (6.1).

A short run's average reaches back to weights that knew little, so the last
weights may be better. Both are validated when a training ends; `result.json`
says which are in `final.weights.h5`, and what validation found.
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
from keras_transformer.machine import extras, files
from keras_transformer.model import Transformer
from keras_transformer.presets import parameters
from keras_transformer.runs.checkpoints import (
    WEIGHTS_FILE,
    list_checkpoints,
    newest_undamaged,
    step_of,
)
from keras_transformer.runs.layout import CHECKPOINTS, FINAL_FILE, RESULT_FILE
from keras_transformer.runs.run_config import RunConfig

# Of reading weights that a running training may replace.
_ATTEMPTS = 3

AVERAGE, LAST, BEST = "average", "last", "best"

logger = logging.getLogger("keras_transformer")


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The weights of a run to take; `result.json` keeps those of its end.

    Attributes:
        checkpoints: Names of the checkpoints behind them, oldest first; none
            if only the final weights are left.
        weights: CRC-32 of the file that they, or the newest of them, are in.
        averages: The average in words, such as "average of the last 5
            checkpoints", or what else there is.
        step: Updates of the whole training; 0 if it did not end, or left no
            `result.json`, so that the attributes below say nothing.
        better: `"average"`, `"last"` or `"best"`: which these are.
        validation: The figures of each of these weights on the validation
            set: `loss`, `perplexity`, `token_accuracy` and `bleu`, of a sample
            decoded greedily. Weights that could not be validated have none.
            Only a training with `patience` has the best beside the others.
        by: `"loss"` or `"bleu"`: the figure that decided.
        averaged: How many checkpoints the average is of; 0 if not noted.
        run_dir: The run directory, which the file does not name.
        is_final: Whether they are in `final.weights.h5`; likewise.
    """

    checkpoints: tuple[str, ...]
    weights: int
    averages: str
    step: int = 0
    better: str = AVERAGE
    validation: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    by: str = "loss"
    averaged: int = 0
    run_dir: pathlib.Path = pathlib.Path()
    is_final: bool = False

    def __str__(self) -> str:
        """Identify them: other weights have another text."""
        return " ".join([*self.checkpoints, f"{self.weights:08x}"])

    def sentence(self) -> str:
        """Name the weights, and why they were taken."""
        names = {
            AVERAGE: self.averages,
            LAST: "last weights",
            BEST: "weights of the best validation",
        }
        said = names[self.better]
        if not self.step:
            return said
        if not self.validation.keys() >= {AVERAGE, LAST}:
            return f"{said} (could not be validated)"
        found = (
            f"{which} {figures[self.by]:.4g}"
            for which, figures in self.validation.items()
        )
        return f"{said} (validation {self.by}: {', '.join(found)})"

    def save(self) -> None:
        """Write `result.json`."""
        fields = dataclasses.asdict(self)
        run_dir = fields.pop("run_dir")
        del fields["is_final"]
        files.write_text(run_dir / RESULT_FILE, files.to_json(fields))

    def load(
        self,
        run: RunConfig,
        average: int | None = None,
        purpose: str = "Taking",
    ) -> Transformer:
        """Build the run's model, in float32, with these weights.

        One line of the log names them after `purpose`, or says how many of
        `average` checkpoints there are.

        Raises:
            FileNotFoundError: If a training has replaced them meanwhile.
            UserError: If they cannot be read.
        """
        wanted = average or run.training.average
        if not self.is_final and self.averaged < wanted:
            logger.warning(
                "Averaging only %d checkpoint%s instead of %d: %s has no more.",
                *(self.averaged, "s" if self.averaged > 1 else ""),
                *(wanted, self.run_dir),
            )
        else:
            logger.info("%s the %s.", purpose, self.sentence())
        extras.check_keras()
        path, kept = self.run_dir / FINAL_FILE, list[pathlib.Path]()
        if not self.is_final:
            folder = self.run_dir / CHECKPOINTS
            kept = [folder / name for name in self.checkpoints]
            path = kept[-1] / WEIGHTS_FILE
        # A wrong number there must not fill the memory.
        size, count = path.stat().st_size, parameters(run.model)
        if count > size / 2:  # In float32 it would be a quarter.
            raise UserError(
                f"config.json in {self.run_dir} describes a model of {count:,} "
                f"parameters, of which {path} is too small to hold the half; "
                "restore the one or the other."
            )
        model = Transformer(**dataclasses.asdict(run.model), dtype="float32")
        if not self.is_final:
            average_weights(model, kept)
            return model
        try:
            model.load_weights(path)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"{path} cannot be read ({type(error).__name__}); restore it, "
                "or ask for an average of checkpoints with `average`."
            ) from None
        if files.checksum(path) != self.weights:
            raise FileNotFoundError(path)
        return model


def final_result(run_dir: str | os.PathLike) -> Chosen | None:
    """Read `result.json`, if it describes the end of the run's training.

    It is None if the training has not ended or has continued since, or if the
    weights are missing or have changed.

    Raises:
        UserError: If the weights are damaged, and there are no checkpoints to
            use instead.
    """
    run_dir = pathlib.Path(run_dir)
    path = run_dir / FINAL_FILE
    if not path.exists():
        return None
    try:
        fields = files.from_json((run_dir / RESULT_FILE).read_text("utf-8"))
        fields["checkpoints"] = tuple(fields["checkpoints"])
        result = Chosen(**fields, run_dir=run_dir, is_final=True)
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
    if result.weights == files.checksum(path):
        return result
    what = f"{path}, which has changed since it was written"
    if not kept:
        raise UserError(
            f"Expected the weights of the end of a training, found {what}, and "
            "no checkpoints to use instead; restore it from a copy."
        )
    logger.warning("Skipping %s, so translations may differ from before.", what)
    return None


def choose(
    run_dir: pathlib.Path, run: RunConfig, average: int | None = None
) -> Chosen:
    """Choose a run's weights to translate with.

    Without `average` these are those that validation found better at the end of
    the training, as `result.json` says. If the training has not ended, as many
    of the newest checkpoints are averaged as the recipe says (section 6.1), and
    with `average` that many. If there are fewer, all are taken, and the log
    says so.

    Raises:
        UserError: If the run has no weights.
    """
    if average is None:
        if result := final_result(run_dir):
            return result
        if is_slim(run_dir):
            checksum = files.checksum(run_dir / FINAL_FILE)
            said = "weights that the training ended with"
            return Chosen((), checksum, said, run_dir=run_dir, is_final=True)
    return choose_average(run_dir, run, average)


def choose_average(
    run_dir: pathlib.Path, run: RunConfig, average: int | None = None
) -> Chosen:
    """Choose checkpoints as `choose`, even if validation preferred others."""
    if is_slim(run_dir):
        raise UserError(
            f"{run_dir} has no checkpoints any more, only the weights its "
            "training ended with; leave out `average` to take them."
        )
    if not list_checkpoints(run_dir):
        raise UserError(
            f"{run_dir} has no checkpoint yet; train until it has written one."
        )
    found = newest_undamaged(run_dir, average or run.training.average)
    names = tuple(path.name for path, _ in found)
    count, (_, newest) = len(found), found[-1]
    said = f"average of the last {count} checkpoints"
    return Chosen(
        names,
        newest["files"][WEIGHTS_FILE],
        averages=said if count > 1 else "last checkpoint",
        averaged=count,
        run_dir=run_dir,
    )


def load(
    run_dir: str | os.PathLike,
    average: int | None = None,
    run: RunConfig | None = None,
) -> tuple[Transformer, Chosen]:
    """Build a run's model, without an optimizer, with the weights of `choose`.

    Raises:
        UserError: If `run_dir` is not a run directory, or has no weights that
            can be read.
    """
    run_dir = pathlib.Path(run_dir)
    run = run or RunConfig.load(run_dir)
    for _ in range(_ATTEMPTS):
        chosen = choose(run_dir, run, average)
        with contextlib.suppress(FileNotFoundError):
            return chosen.load(run, average), chosen
    raise UserError(
        f"The weights in {run_dir} changed each time they were read; wait "
        "until the training has written its files, then try again."
    )


def is_slim(run_dir: str | os.PathLike) -> bool:
    """Return whether only the final weights of a run are left."""
    has_final = (pathlib.Path(run_dir) / FINAL_FILE).exists()
    return has_final and not list_checkpoints(run_dir)


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
