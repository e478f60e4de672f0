"""The request for a training: a configuration, its corpus, a session.

This module does not need TensorFlow, so a mistake shows before it loads.
"""

import dataclasses
import importlib.resources
import itertools
import os
import pathlib
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from keras_transformer.config import (
    EXCLUDED,
    SETTINGS,
    SettingError,
    UserError,
)
from keras_transformer.data.corpora import (
    Source,
    absolute_name,
    one_name,
    open_corpus,
)
from keras_transformer.data.corpus import DEMO, MEMORY, Corpus
from keras_transformer.data.held_out import hold_out
from keras_transformer.data.mixture import tags_of
from keras_transformer.data.symbols import Form, read_symbols
from keras_transformer.runs.run_config import RunConfig, begun_config
from keras_transformer.settings import kind_of, nearest, setting, settle


@dataclasses.dataclass(frozen=True)
class Session:
    """The settings of one session; the run's next one may choose differently.

    Every update has the same batch and learning rate. Another `strategy` or
    `accumulate` changes the draws of dropout and the rounding of sums. When a
    run begins, `xla` chooses the recipe's `length_growth`, unless that is
    given; the run keeps it.

    Attributes:
        callbacks: Keras callbacks, called after the package's own. A training
            is one epoch of as many batches as it has updates.
    """

    minutes: float | None = setting(
        None,
        "minutes of training in all, over all sessions; no limit if not given",
        within="(0, inf)",
    )
    strategy: str = setting(
        "auto",
        "where replicas run (none: one device, mirrored: all GPUs of this "
        "machine, multiworker: all workers in TF_CONFIG)",
        choices=("auto", "none", "mirrored", "multiworker"),
    )
    accumulate: int = setting(
        1,
        "micro-batches into which a replica splits its share of a batch",
        within="[1, inf)",
    )
    xla: str = setting(
        "auto",
        "whether XLA compiles the gradient, once for each batch shape (auto: "
        "on GPUs only)",
        choices=("auto", "on", "off"),
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
        """Advise on saving memory, as the end of a sentence."""
        return (
            f"the same again with `accumulate` {2 * self.accumulate} goes on "
            "in half of it, with the same batches; a smaller `batch_tokens` "
            "needs another `run_dir`"
        )


SESSION_SETTINGS = [
    field
    for field in dataclasses.fields(Session)
    if "setting" in field.metadata
]


RECIPE_SUFFIX = ".args"
# From this number of pairs on, `base` is the preset unless you name one.
ENOUGH_FOR_BASE = 100_000


def request(
    corpus: Source | None = None, **settings: Any
) -> tuple[RunConfig, Corpus]:
    """Turn the arguments of `kt.train` into a configuration and its corpus.

    Raises:
        UserError: If they make no sense.
    """
    if corpus is None:
        corpus = open_corpus(None)  # Refused.
    corpus = one_name(corpus)
    is_name = isinstance(corpus, str | os.PathLike)
    if not is_name:  # An iterator can be read once.
        sides = ("source_lang", "target_lang")
        named = {name: settings[name] for name in sides if name in settings}
        corpus = open_corpus(corpus, **named)
    if settings.get("preset") is None and settings.get("init_from") is None:
        settings["preset"] = fitting_preset(corpus, **settings)
    run = configure(corpus, **settings)
    return run, open_text(run, run.corpus if is_name else corpus)


class Asked(NamedTuple):
    """The checked arguments of a training.

    Attributes:
        given: All arguments that were given, those of a recipe included.
        session: How this session trains.
        run: The configuration.
        corpus: The corpus, opened.
        path: The run directory.
    """

    given: dict[str, Any]
    session: Session
    run: RunConfig
    corpus: Corpus
    path: pathlib.Path

    @classmethod
    def understand(cls, **arguments: Any) -> "Asked":
        """Check arguments as far as possible without TensorFlow."""
        of_recipe = arguments.pop("recipe", None)
        of_session = {
            field.name: arguments.pop(field.name)
            for field in dataclasses.fields(Session)
            if field.name in arguments
        }
        session = Session(**of_session)
        given = {name: x for name, x in arguments.items() if x is not None}
        if of_recipe is not None:
            excluded = [EXCLUDED.get(name) for name in given]
            for name, value in recipe(of_recipe).items():
                if name not in excluded:
                    given.setdefault(name, value)
        run, corpus = request(**given)
        path = given.get("run_dir") or default_run_dir(run.preset)
        return cls(given, session, run, corpus, pathlib.Path(path))


def open_text(run: RunConfig, source: Source) -> Corpus:
    """Open the text of a run, and hold out a validation split if asked to.

    Raises:
        UserError: As in `open_corpus` and `hold_out`.
    """
    corpus = open_corpus(
        source, run.source_lang, run.target_lang, run.train_split
    )
    share = run.training.validation_share
    if share is None:
        return corpus
    splits = run.train_split, run.validation_split
    return hold_out(corpus, *splits, share)


def fitting_preset(
    corpus: Source,
    *,
    run_dir: str | os.PathLike | None = None,
    source_lang: str = "en",
    target_lang: str = "de",
    train_split: str = "train",
    **others: Any,
) -> str:
    """Choose the preset if none is named: the run's own, or one by the text.

    The arguments are those of `kt.train`; others are ignored.

    Raises:
        UserError: If the corpus cannot be opened or lacks the split.
    """
    if run_dir is not None and (begun := begun_config(run_dir)):
        return begun.preset
    if corpus == DEMO:
        return DEMO
    opened = open_corpus(corpus, source_lang, target_lang, train_split)
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
    """Make only the configuration, reading nothing but the initial run.

    Args:
        corpus: As in `open_corpus`.
        preset: As in `RunConfig.from_preset`.
        tokenizer: A vocabulary made elsewhere in any form, or None.
        symbols: Strings that stay one piece in the vocabulary, or their file;
            the tags of a mixture need not be among them.
        init_from: Directory of the run to start from, or None.
        run_dir: The run directory, new or begun; by default that of the
            preset.
        **settings: As in `RunConfig.from_preset`.

    Raises:
        UserError: If it makes no sense.
    """
    if tokenizer is not None and init_from is not None:
        raise UserError(
            "Expected `tokenizer` or `init_from`, which brings its own "
            "vocabulary, received both; leave one out."
        )
    of_new = dict(symbols=symbols, normalization=settings.get("normalization"))
    made = dict(tokenizer=tokenizer, init_from=init_from)
    for new, name in itertools.product(of_new, made):
        if of_new[new] is not None and made[name] is not None:
            raise UserError(
                f"Expected `{new}` or `{name}`, which brings its own "
                "vocabulary, received both; leave one out."
            )
    of_corpus: str | os.PathLike = MEMORY
    corpus = one_name(corpus)
    if isinstance(corpus, Corpus):
        of_corpus = corpus.name
    elif isinstance(corpus, str | os.PathLike):
        of_corpus = corpus
    if run_dir is None and (preset or init_from is None):
        run_dir = default_run_dir(preset)
    begun = None if run_dir is None else begun_config(run_dir)
    if begun and of_new["normalization"] is None:
        settings["normalization"] = begun.training.normalization
    is_new = tokenizer is None and init_from is None
    if not begun and is_new:
        settings["normalization"] = of_new["normalization"] or "nfc"
    form: Form = "NFKC" if settings.get("normalization") == "nfkc" else "NFC"
    pieces = () if symbols is None else read_symbols(symbols, form)
    if is_new:
        tags = set(tags_of(os.fspath(of_corpus))) - set(pieces)
        if begun:  # Perhaps with a vocabulary made elsewhere.
            tags &= set(begun.symbols or ())
        if tags:
            pieces = read_symbols([*pieces, *sorted(tags)], form)
    return RunConfig.from_preset(
        preset,
        corpus=absolute_name(of_corpus),
        init_from=init_from,
        begun=begun,
        symbols=pieces or None,
        **settings,
    )


def recipe(name: str) -> dict[str, Any]:
    """Read a recipe of this package as arguments of `keras_transformer.train`.

    `train("runs/mine", corpus="my-text", recipe="small-corpus", steps=8_000)`
    takes it whole; your other arguments override it.

    Args:
        name: Name of a recipe.

    Returns:
        Only the arguments that the recipe gives.

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
    """Return the recipes by name, each as the text of its file."""
    folder = importlib.resources.files("keras_transformer") / "recipes"
    return {
        file.name.removesuffix(RECIPE_SUFFIX): file.read_text("utf-8")
        for file in sorted(
            folder.iterdir(), key=lambda file: file.name.split(".")
        )
        if file.name.endswith(RECIPE_SUFFIX)
    }
