"""What a training is asked for: a configuration, its corpus, a session.

Without TensorFlow, so that a mistake shows before it is loaded.
"""

import dataclasses
import importlib.resources
import itertools
import os
import pathlib
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from keras_transformer.config import SETTINGS, SettingError, UserError
from keras_transformer.data.corpora import Source, absolute_name, open_corpus
from keras_transformer.data.corpus import DEMO, MEMORY, Corpus
from keras_transformer.data.held_out import hold_out
from keras_transformer.data.symbols import read_symbols
from keras_transformer.runs.run_config import RunConfig, begun_config
from keras_transformer.settings import kind_of, nearest, setting, settle

XLA: dict[str, bool | str] = {"auto": "auto", "on": True, "off": False}


@dataclasses.dataclass(frozen=True)
class Session:
    """How one session trains; the next one of a run may choose otherwise.

    Every update has the same batch and learning rate. With another `strategy`
    or `accumulate` dropout draws otherwise, and sums are rounded otherwise.
    Where a run begins, `xla` chooses the recipe's `length_growth`, unless that
    is given; the run keeps it.

    Attributes:
        callbacks: Keras callbacks, called after the package's own. A training
            is one epoch of as many batches as it has updates.
    """

    minutes: float | None = setting(
        None,
        "minutes of training in all, over all sessions; no limit where "
        "not given",
        within="(0, inf)",
    )
    strategy: str = setting(
        "auto",
        "where the replicas are",
        choices=("auto", "none", "mirrored", "multiworker"),
    )
    accumulate: int = setting(
        1,
        "micro-batches that a replica runs its share of a batch in",
        within="[1, inf)",
    )
    xla: str = setting(
        "auto",
        "whether the gradient is compiled for every shape of a batch; "
        "auto: on GPUs",
        choices=tuple(XLA),
    )
    callbacks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        settle(self)
        if not isinstance(self.callbacks, Iterable) or not all(
            hasattr(callback, "set_model") for callback in self.callbacks
        ):
            raise SettingError(
                "callbacks", "a list of Keras callbacks", self.callbacks
            )

    @property
    def less_memory(self) -> str:
        """Advise on memory that runs out: the end of a sentence."""
        return (
            f"the same again with `accumulate` {2 * self.accumulate} goes on "
            "in half of it, with the same batches; a smaller `batch_tokens` "
            "takes another `run_dir`"
        )


SESSION_SETTINGS = [
    field
    for field in dataclasses.fields(Session)
    if "setting" in field.metadata
]


RECIPE_SUFFIX = ".args"
# Pairs from which on `base` is taken where nobody names a preset.
ENOUGH_FOR_BASE = 100_000


def request(
    corpus: Source | None = None, **settings: Any
) -> tuple[RunConfig, Corpus]:
    """Understand what `keras_transformer.train` is asked for.

    Args:
        corpus: As for `open_corpus`.
        **settings: As for `configure`.

    Returns:
        The configuration, and the corpus, opened.

    Raises:
        UserError: If it makes no sense.
    """
    if corpus is None:
        corpus = open_corpus(None)  # Refused.
    if settings.get("preset") is None and settings.get("init_from") is None:
        settings["preset"] = fitting_preset(corpus, **settings)
    run = configure(corpus, **settings)
    return run, open_text(run, run.corpus if _is_name(corpus) else corpus)


def open_text(run: RunConfig, source: Source) -> Corpus:
    """Open the text of a run, its validation split held out where it says so.

    Raises:
        UserError: As from `open_corpus` and `hold_out`.
    """
    corpus = open_corpus(source, run.source_lang, run.target_lang)
    share = run.training.validation_share
    if share is None:
        return corpus
    splits = run.train_split, run.validation_split
    return hold_out(corpus, *splits, share, run.training.seed)


def fitting_preset(
    corpus: Source,
    *,
    run_dir: str | os.PathLike | None = None,
    source_lang: str = "en",
    target_lang: str = "de",
    train_split: str = "train",
    **others: Any,
) -> str:
    """Choose the preset that nobody names: the run's own, or by the text.

    Args:
        corpus: As for `open_corpus`.
        run_dir: Where the run goes, or has begun.
        source_lang: As for `kt.train`, like the others.
        target_lang: Likewise.
        train_split: Likewise.
        **others: Of no matter here.

    Raises:
        UserError: If the corpus cannot be opened or lacks the split.
    """
    if run_dir is not None and (begun := begun_config(run_dir)):
        return begun.preset
    if corpus == DEMO:
        return DEMO
    opened = open_corpus(corpus, source_lang, target_lang)
    pairs = opened.pairs(train_split, "train_split")
    some = sum(1 for _ in itertools.islice(pairs, ENOUGH_FOR_BASE))
    return "base" if some == ENOUGH_FOR_BASE else "tiny"


def default_run_dir(preset: str | None) -> pathlib.Path:
    """Return the run directory to take if none is given."""
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
            "Expected `tokenizer` or `init_from`, which brings its own "
            "vocabulary, received both; leave one out."
        )
    for name, other in ("tokenizer", tokenizer), ("init_from", init_from):
        if symbols is not None and other is not None:
            raise UserError(
                f"Expected `symbols` or `{name}`, which brings its own "
                "vocabulary, received both; leave one out."
            )
    of_corpus: str | os.PathLike = MEMORY
    if isinstance(corpus, Corpus):
        of_corpus = corpus.name
    elif _is_name(corpus):
        of_corpus = corpus
    if run_dir is None and (preset or init_from is None):
        run_dir = default_run_dir(preset)
    begun = None if run_dir is None else begun_config(run_dir)
    return RunConfig.from_preset(
        preset,
        corpus=absolute_name(of_corpus),
        init_from=init_from,
        begun=begun,
        symbols=None if symbols is None else read_symbols(symbols),
        **settings,
    )


def recipe(name: str) -> dict[str, Any]:
    """Read a recipe of this package as arguments of `keras_transformer.train`.

    `train("runs/mine", corpus="my-text", recipe="small-corpus", steps=8_000)`
    takes it whole; what is given beside it wins.

    Args:
        name: Name of a recipe.

    Returns:
        The arguments that the recipe gives, and no others.

    Raises:
        UserError: If there is no such recipe.
    """
    known = recipes()
    if name not in known:
        raise SettingError(
            "recipe", f"one of {', '.join(known)}{nearest(name, known)}", name
        )
    found: dict[str, Any] = {}
    for word in shlex.split(known[name], comments=True):
        if word.startswith("--"):
            argument = word[2:].replace("-", "_")
            found[argument] = True
            continue
        kind: Any = str
        if argument in SETTINGS:
            kind, _ = kind_of(SETTINGS[argument])
        found[argument] = kind(word)
    return found


def recipes() -> dict[str, str]:
    """The recipes by name, each as the text of its file: words of a shell."""
    folder = importlib.resources.files("keras_transformer") / "recipes"
    return {
        file.name.removesuffix(RECIPE_SUFFIX): file.read_text("utf-8")
        for file in sorted(
            folder.iterdir(), key=lambda file: file.name.split(".")
        )
        if file.name.endswith(RECIPE_SUFFIX)
    }


def _is_name(corpus: Source) -> TypeGuard[str | os.PathLike]:
    return isinstance(corpus, str | os.PathLike)
