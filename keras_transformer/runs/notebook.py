"""Shows a run in a notebook: a few lines and its curve."""

import base64
import html
import io
import pathlib

from keras_transformer.config import UserError
from keras_transformer.runs import history
from keras_transformer.runs.result import final_result
from keras_transformer.runs.run_config import RunConfig


def as_html(run_dir: pathlib.Path, parameters: int) -> str:
    """Draw a table and, if matplotlib is installed, the learning curve.

    Args:
        run_dir: The run directory.
        parameters: Number of the model's parameters.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in _summary(run_dir, parameters).items()
    )
    return f"<table>{rows}</table>{_curve(run_dir)}"


def _summary(run_dir: pathlib.Path, parameters: int) -> dict[str, str]:
    run, rows = RunConfig.load(run_dir), history.read_history(run_dir)
    summary = {
        "run": str(run_dir),
        "preset": f"{run.preset}, {parameters:,} parameters",
        "corpus": f"{run.corpus}, {run.source_lang} to {run.target_lang}",
        "vocabulary": f"{run.model.vocab_size:,} pieces",
    }
    if rows:
        step, minutes = int(rows[-1]["step"]), rows[-1]["minutes"]
        summary["trained"] = (
            f"{step:,} of {run.training.steps:,} updates in {minutes:.1f} "
            "minutes"
        )
    if validated := [row for row in rows if "validation_bleu" in row]:
        last = validated[-1]
        summary["validation"] = (
            f"loss {last['validation_loss']:.3f}, BLEU "
            f"{last['validation_bleu']:.1f} (greedy, a sample)"
        )
    if result := final_result(run_dir):
        summary["weights"] = result.sentence()
    return summary


def _curve(run_dir: pathlib.Path) -> str:
    if not history.read_history(run_dir):
        return ""
    picture = io.BytesIO()
    try:
        history.plot(run_dir).savefig(picture, format="png", dpi=72)
    except UserError:  # The table does not need matplotlib.
        return ""
    data = base64.b64encode(picture.getvalue()).decode()
    return f"<img alt='learning curve' src='data:image/png;base64,{data}'>"
