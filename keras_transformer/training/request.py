"""What a training is asked for: a configuration and its corpus.

Without TensorFlow, so that a mistake shows before it is loaded.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, TypeGuard

from keras_transformer.config import UserError
from keras_transformer.data.corpora import Source, absolute_name, open_corpus
from keras_transformer.data.corpus import MEMORY, Corpus
from keras_transformer.data.symbols import read_symbols
from keras_transformer.runs.layout import CONFIG_FILE
from keras_transformer.runs.run_config import RunConfig


def request(corpus: Source, **settings: Any) -> tuple[RunConfig, Corpus]:
    """Understand what `keras_transformer.train` is asked for.

    Args:
        corpus: As for `open_corpus`.
        **settings: As for `configure`.

    Returns:
        The configuration, and the corpus, opened.

    Raises:
        UserError: If it makes no sense.
    """
    run = configure(corpus, **settings)
    source = run.corpus if _is_name(corpus) else corpus
    return run, open_corpus(source, run.source_lang, run.target_lang)


def default_run_dir(preset: str | None) -> pathlib.Path:
    """Where a run goes if nobody says."""
    return pathlib.Path("runs", preset or "base")


def configure(
    corpus: Source,
    *,
    preset: str | None = None,
    tokenizer: Any = None,
    symbols: str | os.PathLike | Sequence[str] | None = None,
    init_from: str | os.PathLike | None = None,
    run_dir: str | os.PathLike | None = None,
    **settings: Any,
) -> RunConfig:
    """The configuration alone; nothing is read but the run to start from.

    Args:
        corpus: As for `open_corpus`.
        preset: As for `RunConfig.from_preset`.
        tokenizer: Whatever stands for a vocabulary made elsewhere, or None.
        symbols: Strings that stay one piece in the vocabulary, or their file.
        init_from: Directory of the run to start from, or None.
        run_dir: Where the run goes, or has begun; where the preset says if not
            given.
        **settings: As for `RunConfig.from_preset`.

    Raises:
        UserError: If it makes no sense.
    """
    if tokenizer is not None and init_from is not None:
        raise UserError(
            "Expected --tokenizer or --init-from, which brings its own "
            "vocabulary, received both; leave one out."
        )
    for flag, other in ("tokenizer", tokenizer), ("init-from", init_from):
        if symbols is not None and other is not None:
            raise UserError(
                f"Expected --symbols or --{flag}, which brings its own "
                "vocabulary, received both; leave one out."
            )
    name: str | os.PathLike = MEMORY
    if isinstance(corpus, Corpus):
        name = corpus.name
    elif _is_name(corpus):
        name = corpus
    begun = None
    if run_dir is None and (preset or init_from is None):
        run_dir = default_run_dir(preset)
    if run_dir is not None and pathlib.Path(run_dir, CONFIG_FILE).exists():
        begun = RunConfig.load(run_dir)
    return RunConfig.from_preset(
        preset,
        corpus=absolute_name(name),
        init_from=init_from,
        begun=begun,
        symbols=None if symbols is None else read_symbols(symbols),
        **settings,
    )


def _is_name(corpus: Source) -> TypeGuard[str | os.PathLike]:
    return isinstance(corpus, str | os.PathLike)
