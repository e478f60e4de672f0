"""The learning curve: `logs/history.csv`, TensorBoard's logs, a picture."""

import csv
import functools
import io
import logging
import os
import pathlib
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.machine import extras, files
from keras_transformer.runs import lock
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.layout import CURVE_FILE, HISTORY_FILE, LOGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


HISTORY_FIELDS = (
    "step",
    "minutes",
    "loss",
    "perplexity",
    "gradient_norm",
    "learning_rate",
    "tokens_per_second",
    "validation_loss",
    "validation_perplexity",
    "validation_accuracy",
    "validation_bleu",
)
logger = logging.getLogger("keras_transformer")


class History:
    """Writes the learning curve: TensorBoard logs and `logs/history.csv`.

    Args:
        run_dir: The run directory.
        step: The update that training resumes from; later rows, left by a
            killed session, are dropped.

    Attributes:
        last: The row that training resumes after; empty if there is none.
    """

    def __init__(self, run_dir: str | os.PathLike, step: int) -> None:
        self.run_dir = run_dir
        folder = pathlib.Path(run_dir) / LOGS
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = tf.summary.create_file_writer(str(folder))
        self.path = folder / HISTORY_FILE
        rows = [
            {**row, "step": int(row["step"])}
            for row in read_history(run_dir)
            if row["step"] <= step
        ]
        self.last = rows[-1] if rows else {}
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, HISTORY_FIELDS)
        table.writeheader()
        table.writerows(rows)
        files.write_text(self.path, text.getvalue())

    def add(self, progress: Progress, **values: float) -> None:
        """Add a row; values not measured stay empty.

        Raises:
            JobError: As in `lock.check`.
        """
        lock.check(self.run_dir)
        minutes = progress.seconds / 60
        row = {"step": progress.step, "minutes": f"{minutes:.3f}"}
        row.update({name: f"{value:.6g}" for name, value in values.items()})
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, HISTORY_FIELDS).writerow(row)
        with self.writer.as_default(step=progress.step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        self.writer.close()


def read_history(run_dir: str | os.PathLike) -> list[dict[str, float]]:
    """Read the rows of `logs/history.csv`, without their empty fields.

    Args:
        run_dir: The run directory.

    Returns:
        The rows, oldest first; an empty list if there is no history. A last
        row that a full disk cut short is skipped. So is a damaged row, and the
        log says so.

    Raises:
        UserError: If its first line does not name the columns.
    """
    path = pathlib.Path(run_dir) / LOGS / HISTORY_FILE
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        whole, _, _ = file.read().rpartition("\n")
    table = csv.DictReader(io.StringIO(whole, newline=""))
    if whole and not set(table.fieldnames or ()) <= set(HISTORY_FIELDS):
        raise UserError(
            f"{path} has columns that no version of this package writes; "
            "restore or remove the file."
        )
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
    """Draw loss and validation BLEU over the minutes of training.

    It avoids pyplot, which would change a notebook's settings.

    Args:
        run_dir: A run directory.

    Returns:
        The figure, which a notebook shows.

    Raises:
        UserError: If matplotlib is missing.
    """
    figures = extras.needs("matplotlib.figure", "plot")
    rows = read_history(run_dir)
    figure = figures.Figure(figsize=(7, 6), layout="constrained")
    # A notebook asks for this, whatever backend it draws with.
    figure._repr_png_ = functools.partial(_as_png, figure)
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


def draw(run_dir: str | os.PathLike) -> pathlib.Path:
    """Write `plot` as `curve.png` into the run directory; return its path."""
    path = pathlib.Path(run_dir) / CURVE_FILE
    figure = plot(run_dir)
    canvas = extras.needs("matplotlib.backends.backend_agg", "plot")
    canvas.FigureCanvasAgg(figure)
    with files.whole(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    return path


def _as_png(figure: "Figure") -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
