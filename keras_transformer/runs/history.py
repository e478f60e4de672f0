"""The curve of a run: `logs/history.csv` and TensorBoard's logs."""

import csv
import io
import logging
import os
import pathlib

import tensorflow as tf

from keras_transformer import files
from keras_transformer.config import UserError
from keras_transformer.runs import lock
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.layout import HISTORY_FILE, LOGS

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
    """The curve of a run: TensorBoard logs and `logs/history.csv`.

    Args:
        run_dir: The run directory.
        step: The update that training resumes from; later rows, left by a
            session that was killed, are dropped.
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
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, HISTORY_FIELDS)
        table.writeheader()
        table.writerows(rows)
        files.write_text(self.path, text.getvalue())

    def add(self, progress: Progress, **values: float) -> None:
        """Add a row; what was not measured stays empty.

        Raises:
            JobError: As from `lock.check`.
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
    """The rows of `logs/history.csv`, without their empty fields.

    Args:
        run_dir: The run directory.

    Returns:
        Oldest first; an empty list where there is no history. A last row
        that was cut short, as a full disk may leave it, is passed over, and
        so is a damaged one, with a word on the log.

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
    rows = []
    for row in table:
        try:
            values = {
                name: float(value) for name, value in row.items() if value
            }
            values["step"], values["minutes"]
        except (ValueError, TypeError, KeyError):
            logger.warning("Passing over a damaged row of %s.", path)
            continue
        rows.append(values)
    return rows
