"""The learning curve of a run as a picture."""

import functools
import io
import os
import pathlib
from typing import TYPE_CHECKING

from keras_transformer import extras, files
from keras_transformer.runs.history import read_history
from keras_transformer.runs.layout import CURVE_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(run_dir: str | os.PathLike) -> "Figure":
    """Draw loss and validation BLEU over the minutes of training.

    Not with pyplot, which would change what a notebook draws with.

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
    # What a notebook asks for, whatever it draws with otherwise.
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


def _as_png(figure: "Figure") -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def draw(run_dir: str | os.PathLike) -> pathlib.Path:
    """Write `plot` as `curve.png` into the run directory; returns its path."""
    path = pathlib.Path(run_dir) / CURVE_FILE
    figure = plot(run_dir)
    canvas = extras.needs("matplotlib.backends.backend_agg", "plot")
    canvas.FigureCanvasAgg(figure)
    with files.whole(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    return path
