"""The entry from Python to a training."""

import os
from collections.abc import Sequence
from typing import Any

from keras_transformer.data.corpora import Source
from keras_transformer.run import Run
from keras_transformer.training.request import log_shown, understand


def train(
    run_dir: str | os.PathLike | None = None,
    *,
    corpus: Source | None = None,
    preset: str | None = None,
    recipe: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    tokenizer: Any = None,
    symbols: str | os.PathLike | Sequence[str] | None = None,
    init_from: str | os.PathLike | None = None,
    minutes: float | None = None,
    strategy: str | None = None,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Run:
    """Train a whole run in this process, or resume it.

    `train("runs/mine")`, or the same call again, resumes from the last
    checkpoint: the training ends with the weights of an uninterrupted one, and
    reads no text, which may be gone. On a finished run it does nothing.
    Settings that you leave out, or give as None, come from the preset, or from
    the run if it has begun. The call sets the seeds of Python, NumPy and
    TensorFlow, so a process trains one run at a time.

    Args:
        run_dir: The run directory; `runs/PRESET` if not given.
        corpus: Text to learn from, as in `open_corpus`; several are mixed.
        preset: One of `PRESETS`; if not given, `demo` for that corpus, `tiny`
            for fewer than 100,000 pairs, or else `base`.
        recipe: Name of a recipe of this package, such as `"small-corpus"`,
            which your other arguments override.
        source_lang: Language of the source side; `"en"` if not given.
        target_lang: Language of the target side; `"de"` if not given.
        train_split: Split to train on; `"train"` if not given.
        validation_split: Split to validate on; `"val"` if not given.
        tokenizer: A `Tokenizer`, or the file of a sentencepiece model, instead
            of a new vocabulary.
        symbols: Strings, or a file with one a line, that stay one piece in the
            vocabulary.
        init_from: Start with the weights and the vocabulary of another run.
            What is not given fits the size of the text. With a `tokenizer`,
            pieces of both vocabularies keep their rows, others start at the
            mean.
        minutes: Minutes of training in all, over all sessions.
        strategy: Where replicas run: `"none"` (one device), `"mirrored"` (all
            GPUs of this machine), `"multiworker"` (all workers in TF_CONFIG)
            or, if not given, `"auto"`.
        callbacks: Keras callbacks, called after the package's own, on the
            first worker alone. A training is one epoch.
        **settings: Fields of `ModelConfig`, of `TrainingConfig` and of
            `Search` in `keras_transformer.config`, which override the
            preset's, such as `steps=8_000`; `train --help` tells of each.

    Returns:
        The run.

    Raises:
        UserError: If the request makes no sense, or does not fit the run.
        JobError: If the training cannot go on.
        KeyboardInterrupt: After Ctrl-C and a checkpoint, or a second Ctrl-C.
        SystemExit: After SIGTERM and a checkpoint.
    """
    given = locals()
    session = understand(**given.pop("settings"), **given)
    from keras_transformer.training import loop

    with log_shown():
        loop.train(session)
    trained = Run(session.run_dir)
    trained._corpus = session.open_text() if session.corpus else None
    return trained
