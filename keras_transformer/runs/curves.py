"""The learning curve of a run as a picture."""

import os
import pathlib

from keras_transformer import extras
from keras_transformer.runs.history import read_history

CURVE_FILE = "curve.png"


def draw(run_dir: str | os.PathLike) -> pathlib.Path:
    """Draw loss and validation BLEU over the minutes of training.

    Args:
        run_dir: A run directory with a history.

    Returns:
        The path of the picture, `curve.png` in the run directory.

    Raises:
        UserError: If matplotlib is missing.
    """
    # Not pyplot, which would take a window or a notebook's canvas.
    figures = extras.needs("matplotlib.figure", "plot")
    rows = read_history(run_dir)
    figure = figures.Figure(figsize=(7, 6), layout="constrained")
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
    path = pathlib.Path(run_dir) / CURVE_FILE
    partial = path.with_name(f".partial-{path.name}")
    figure.savefig(partial, dpi=120)
    partial.replace(path)
    return path
