"""The learning curve: `logs/history.csv`, TensorBoard's logs, pictures."""

import base64
import contextlib
import csv
import functools
import html
import io
import logging
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.config import UserError
from keras_transformer.machine import extras, files
from keras_transformer.presets import parameters
from keras_transformer.runs.averaging import final_result
from keras_transformer.runs.checkpoints import Progress
from keras_transformer.runs.layout import (
    CURVE_FILE,
    HISTORY_FILE,
    LOGS,
    check_lock,
)
from keras_transformer.runs.run_config import RunConfig

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
    """

    def __init__(self, run_dir: str | os.PathLike, step: int) -> None:
        self.run_dir = run_dir
        self.path = pathlib.Path(run_dir) / LOGS / HISTORY_FILE
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        found = read_history(run_dir)
        rows = [row for row in found if row["step"] <= step]
        events = [*folder.glob("events.out.tfevents.*")]
        self.writer = tf.summary.create_file_writer(str(folder))
        if len(rows) < len(found):  # TensorBoard would show them all.
            for row in rows:
                self._show(**row)
            self.writer.flush()
            for path in events:
                path.unlink()
        lines = (_line({**row, "step": int(row["step"])}) for row in rows)
        names = _line(dict(zip(HISTORY_FIELDS, HISTORY_FIELDS, strict=True)))
        files.write_text(self.path, "".join([names, *lines]))

    def add(self, progress: Progress, **values: float) -> None:
        """Add a row; values not measured stay empty."""
        check_lock(self.run_dir)
        row = {name: f"{value:.6g}" for name, value in values.items()}
        row["minutes"] = f"{progress.seconds / 60:.3f}"
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            file.write(_line({"step": progress.step, **row}))
        self._show(progress.step, **values)
        self.writer.flush()

    def _show(self, step: float, minutes: float = 0.0, **values: float) -> None:
        with self.writer.as_default(step=int(step)):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def close(self) -> None:
        """Close TensorBoard's file."""
        self.writer.close()


def _line(row: Mapping[str, object]) -> str:
    return ",".join(str(row.get(name, "")) for name in HISTORY_FIELDS) + "\r\n"


def read_history(run_dir: str | os.PathLike) -> list[dict[str, float]]:
    """Read the rows of `logs/history.csv`, without their empty fields.

    They come oldest first; there are none without a history. A last row that a
    full disk cut short is skipped. So is a damaged row, and the log says so.
    """
    path = pathlib.Path(run_dir) / LOGS / HISTORY_FILE
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
    """Draw loss and validation BLEU over the minutes of training.

    It avoids pyplot, which would change a notebook's settings.

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
    with files.whole(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    return path


def as_html(run_dir: pathlib.Path, run: RunConfig) -> str:
    """Show a run in a notebook: a few lines and, with matplotlib, its curve."""
    history = read_history(run_dir)
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in _summary(run_dir, run, history).items()
    )
    curve = ""
    if history:
        with contextlib.suppress(UserError):  # There may be no matplotlib.
            picture = base64.b64encode(_as_png(plot(run_dir), dpi=72)).decode()
            curve = (
                "<img alt='learning curve' "
                f"src='data:image/png;base64,{picture}'>"
            )
    return f"<table>{rows}</table>{curve}"


def _summary(
    run_dir: pathlib.Path, run: RunConfig, history: list[dict[str, float]]
) -> dict[str, str]:
    summary = {
        "run": str(run_dir),
        "preset": f"{run.preset}, {parameters(run.model):,} parameters",
        "corpus": f"{run.corpus}, {run.source_lang} to {run.target_lang}",
        "vocabulary": f"{run.model.vocab_size:,} pieces",
    }
    if history:
        step, minutes = int(history[-1]["step"]), history[-1]["minutes"]
        summary["trained"] = (
            f"{step:,} of {run.training.steps:,} updates in {minutes:.1f} "
            "minutes"
        )
    if validated := [row for row in history if "validation_bleu" in row]:
        last = validated[-1]
        summary["validation"] = (
            f"loss {last['validation_loss']:.3f}, BLEU "
            f"{last['validation_bleu']:.1f} (greedy, a sample)"
        )
    if result := final_result(run_dir):
        summary["weights"] = result.sentence()
    return summary


def _as_png(figure: "Figure", dpi: float | None = None) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dpi)
    return picture.getvalue()
