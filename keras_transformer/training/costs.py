"""The door to a dry run: a mistake shows before TensorFlow loads."""

import os
from typing import Any

from keras_transformer.settings import with_settings
from keras_transformer.training.request import (
    TRAINING_SETTINGS,
    log_shown,
    understand,
)


@with_settings(TRAINING_SETTINGS)
def dry_run(run_dir: str | os.PathLike | None = None, **settings: Any) -> str:
    """Tell what a training would cost: memory, time and FLOPs.

    It reads the corpus once, and tells what to clean in it: repeated pairs,
    equal sides, unlike lengths, pairs that are dropped. The costs come from the
    first 20,000 pairs and a few steps. It writes nothing to the run directory.

    Example:
        kt.dry_run("runs/mine", corpus="my-text", recipe="small-corpus")

    Args:
        run_dir: As in `train`, like all others.
        **settings: Those of `train`.

    Returns:
        A table, as text that a notebook shows as it is.

    Raises:
        UserError: If the training could not begin, or takes several machines.
        JobError: If memory or disk is full.
    """
    session = understand(run_dir=run_dir, **settings)
    from keras_transformer.training import dry_run as measured

    with log_shown():
        return measured.dry_run(session)
