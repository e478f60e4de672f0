"""The entry from Python to a training."""

import os
from typing import Any

from keras_transformer.run import Run
from keras_transformer.settings import with_settings
from keras_transformer.training.request import (
    TRAINING_SETTINGS,
    log_shown,
    understand,
)


@with_settings(TRAINING_SETTINGS)
def train(run_dir: str | os.PathLike | None = None, **settings: Any) -> Run:
    """Train a whole run in this process, or resume it.

    `train("runs/mine")`, or the same call again, resumes from the last
    checkpoint: the training ends with the weights of an uninterrupted one, and
    reads no text, which may be gone. On a finished run it does nothing.
    Settings that you leave out, or give as None, come from the preset, or from
    the run if it has begun. The call sets the seeds of Python, NumPy and
    TensorFlow, so a process trains one run at a time.

    The `corpus` is one as in `open_corpus`. Without a preset it is `demo` for
    that corpus, `tiny` for fewer than 100,000 pairs, or else `base`. A
    `tokenizer` and `symbols` may also be objects: a `Tokenizer`, and a list.
    With `init_from`, pieces of both vocabularies keep their rows, and others
    start at the mean.

    Args:
        run_dir: The run directory; `runs/PRESET` if not given.
        **settings: Those of this session, and those that override the preset's.

    Returns:
        The run.

    Raises:
        UserError: If the request makes no sense, or does not fit the run.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    session = understand(run_dir=run_dir, **settings)
    from keras_transformer.training import loop

    with log_shown():
        loop.train(session)
    trained = Run(session.run_dir)
    trained._corpus = session.open_text() if session.corpus else None
    return trained
