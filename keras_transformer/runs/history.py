"""The learning curve: `logs/history.csv`, TensorBoard's logs, pictures."""

import csv
import io
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.config import UserError, logger
from keras_transformer.machine import extras, files
from keras_transformer.runs import layout
from keras_transformer.runs.checkpoints import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


HISTORY_FIELDS = (
    "step minutes loss perplexity gradient_norm learning_rate "
    "tokens_per_second validation_loss validation_perplexity "
    "validation_accuracy validation_bleu"
).split()


class History:
    """Writes the learning curve: TensorBoard logs and `logs/history.csv`.

    Rows after the update `step`, which a killed session left, are dropped.
    """

    def __init__(self, run_dir: str | os.PathLike, step: int) -> None:
        self.run_dir = run_dir
        self.path = pathlib.Path(run_dir) / layout.LOGS / layout.HISTORY_FILE
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for row in read_history(run_dir) if row["step"] <= step]
        self.writer = tf.summary.create_file_writer(str(folder))
        lines = (_line({**row, "step": int(row["step"])}) for row in rows)
        names = _line({name: name for name in HISTORY_FIELDS})
        files.write_text(self.path, "".join([names, *lines]))

    def add(self, progress: Progress, **values: float) -> None:
        """Add a row; values not measured stay empty."""
        layout.check_lock(self.run_dir)
        row = {name: f"{value:.6g}" for name, value in values.items()}
        row["minutes"] = f"{progress.seconds / 60:.3f}"
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(_line({"step": progress.step, **row}))
        with self.writer.as_default(step=progress.step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        self.writer.close()


def _line(row: Mapping[str, object]) -> str:
    return ",".join(str(row.get(name, "")) for name in HISTORY_FIELDS) + "\r\n"


def read_history(run_dir: str | os.PathLike) -> list[dict[str, float]]:
    """Read the rows of `logs/history.csv`, oldest first, if there are any.

    They lack what is empty. A damaged row is skipped, and the log says so; so
    is a last one that a full disk cut short.
    """
    path = pathlib.Path(run_dir) / layout.LOGS / layout.HISTORY_FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        whole, _, _ = file.read().rpartition("\n")
    table = csv.DictReader(io.StringIO(whole, newline=""))
    rows: list[dict[str, float]] = []
    for row in table:
        try:
            values = {
                name: float(value) for name, value in row.items() if value
            }
            values["step"], values["minutes"]
        except (ValueError, TypeError, KeyError):
            logger.warning("Skipping a damaged row of %s.", path)
            continue
        if rows and rows[-1]["step"] == values["step"]:
            rows[-1].update(values)  # A validation after its step.
        else:
            rows.append(values)
    return rows


def plot(run_dir: str | os.PathLike) -> "Figure":
    """Draw loss and validation BLEU over the minutes of training."""
    figure, rows = extras.figure(7, 6), read_history(run_dir)
    losses, bleu = figure.subplots(2, 1, sharex=True)
    for axes, field, label in (
        (losses, "loss", "training (dropout on)"),
        (losses, "validation_loss", "validation"),
        (bleu, "validation_bleu", "validation sample, greedy"),
    ):
        points = [(row["minutes"], row[field]) for row in rows if field in row]
        if points:
            axes.plot(*zip(*points, strict=True), marker=".", label=label)
            axes.legend()
    losses.set_ylabel("loss, nats per token\n(label-smoothed)")
    bleu.set_ylabel("BLEU")
    bleu.set_ylim(bottom=0)
    bleu.set_xlabel("minutes of training")
    for axes in (losses, bleu):
        axes.grid(alpha=0.3)
    return figure


def draw(run_dir: str | os.PathLike) -> None:
    """Write `plot` as `curve.png` into the run directory, if it can be."""
    path = pathlib.Path(run_dir) / layout.CURVE_FILE
    try:
        figure = plot(run_dir)
    except UserError as error:  # A picture is no reason to fail.
        logger.warning("Left out the learning curve: %s", error)
        return
    with files.whole(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    logger.info("Wrote %s.", path)
