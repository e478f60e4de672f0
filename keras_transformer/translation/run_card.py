"""The card of a run's weights: what the run directory says of them."""

import json
import logging
import os
import pathlib
from typing import Any

from keras_transformer.machine import files
from keras_transformer.runs import averaging, layout
from keras_transformer.runs.checkpoints import WEIGHTS_FILE
from keras_transformer.runs.result import final_result
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.translation.model_card import ModelCard

logger = logging.getLogger("keras_transformer")


def make_card(
    run_dir: pathlib.Path, parameters: int, average: int | None
) -> ModelCard:
    """What an export of a run says of itself.

    Args:
        run_dir: The run directory.
        parameters: Number of weights of its model.
        average: Newest checkpoints averaged, as in `Translator.from_run`.

    Raises:
        UserError: If there are no weights.
    """
    run = RunConfig.load(run_dir)
    names = averaging.checkpoint_names(run_dir, average)
    return ModelCard(
        run.source_lang,
        run.target_lang,
        run.preset,
        _public_name(run.corpus),
        parameters,
        weights=_weights(run_dir, average, names),
        scores=_scores(run_dir, names),
    )


def _scores(
    run_dir: pathlib.Path, names: list[str]
) -> tuple[dict[str, Any], ...]:
    """The scores that the weights of these checkpoints have got."""
    found = []
    for path in sorted((run_dir / layout.EVALUATION).glob("*.json")):
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["checkpoints"] != names:
                continue
            test_set = {
                "corpus": _public_name(report["corpus"]),
                "split": report["split"],
            }
            found += [
                {**test_set, **score} for score in report["scores"].values()
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning(
                "Passing over %s, which cannot be read (%s).",
                path,
                type(error).__name__,
            )
    return tuple(found)


def _weights(
    run_dir: pathlib.Path, average: int | None, names: list[str]
) -> str:
    """Tell these weights from others: their checkpoints and a checksum."""
    path = run_dir / layout.AVERAGED_FILE
    is_final = averaging.is_slim(run_dir) or final_result(run_dir)
    if average is not None or not is_final:
        path = run_dir / layout.CHECKPOINTS / names[-1] / WEIGHTS_FILE
    return " ".join([*names, f"{files.checksum(path):08x}"])


def _public_name(corpus: str) -> str:
    """Name a corpus to strangers: of a folder not where it lies."""
    return os.path.basename(corpus) if os.path.isabs(corpus) else corpus
