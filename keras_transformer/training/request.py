"""The request for a training: a configuration, its corpus, a session.

This module does not need TensorFlow, so a mistake shows before it loads.
"""

import dataclasses
import importlib.resources
import itertools
import logging
import os
import pathlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
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
from keras_transformer.data.corpus import DEMO, Corpus
from keras_transformer.data.held_out import hold_out
from keras_transformer.data.mixture import tags_of
from keras_transformer.data.symbols import Form, read_symbols
from keras_transformer.machine import files
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


logger = logging.getLogger("keras_transformer")
RECIPE_SUFFIX = ".args"
# From this number of pairs on, `base` is the preset unless you name one.
ENOUGH_FOR_BASE = 100_000


class Asked(NamedTuple):
    """A training that was asked for, understood and checked.

    Attributes:
        given: All arguments that were given, those of a recipe included.
        session: How this session trains.
        run: The configuration. Of a run that has begun it is its own, with
            what may change of what was given.
        run_dir: The run directory.
        corpus: The corpus, opened, without anything held out. A run that has
            begun needs none, so it is None unless given from another place.
    """

    given: dict[str, Any]
    session: Session
    run: RunConfig
    run_dir: pathlib.Path
    corpus: Corpus | None

    def open_text(self) -> Corpus:
        """Open the text of the run, even if it has begun.

        Raises:
            UserError: As in `open_text`.
        """
        return open_text(self.run, self.corpus or self.run.corpus)


def understand(**arguments: Any) -> Asked:
    """Turn the arguments of `kt.train` into what is trained, and check them.

    Raises:
        UserError: If they make no sense, or do not fit the run.
    """
    of_recipe = arguments.pop("recipe", None)
    given = {name: x for name, x in arguments.items() if x is not None}
    names = [field.name for field in dataclasses.fields(Session)]
    session = Session(**{x: given.pop(x) for x in names if x in given})
    if of_recipe is not None:
        excluded = [EXCLUDED.get(name) for name in given]
        for name, value in recipe(of_recipe).items():
            if name not in excluded:
                given.setdefault(name, value)
    _refuse_two_vocabularies(given)
    sides = ("source_lang", "target_lang", "train_split")
    opening = {name: given[name] for name in sides if name in given}
    corpus: Any = one_name(given["corpus"]) if "corpus" in given else None
    if isinstance(corpus, str | os.PathLike):
        corpus = absolute_name(corpus)
    elif corpus is not None:
        corpus = open_corpus(corpus, **opening)  # An iterator is read once.
    preset = given.get("preset")
    run_dir = given.get("run_dir")
    if run_dir is None:
        if preset is None and "init_from" in given:
            preset = RunConfig.load(given["init_from"]).preset
        elif preset is None:
            preset, corpus = _fitting(corpus, opening)
        run_dir = pathlib.Path("runs", preset)
    run_dir = pathlib.Path(run_dir)
    if begun := begun_config(run_dir):
        if isinstance(corpus, str):
            languages = begun.source_lang, begun.target_lang
            is_known = corpus == begun.corpus
            corpus = None if is_known else open_corpus(corpus, *languages)
        return resumed(begun, Asked(given, session, begun, run_dir, corpus))
    if corpus is None:
        raise UserError(
            f"Expected a `corpus` to train on, or a run that has begun in "
            f"`run_dir`, found none in {run_dir}; give demo, a folder, "
            "tfds:NAME or pairs of texts."
        )
    if preset is None and "init_from" not in given:
        preset, corpus = _fitting(corpus, opening)
    corpus = open_corpus(corpus, **opening)
    others = ("run_dir", "tokenizer", "symbols", "preset", "corpus")
    settings = {name: x for name, x in given.items() if name not in others}
    if not {"tokenizer", "init_from"} & given.keys():
        settings.setdefault("normalization", "nfc")
    run = RunConfig.from_preset(
        preset,
        corpus=absolute_name(corpus.name),
        symbols=_symbols_of(given, corpus.name, settings),
        **settings,
    )
    return Asked(given, session, run, run_dir, corpus)


def resumed(begun: RunConfig, asked: Asked) -> Asked:
    """Return what is asked of a run that has begun, and so needs no text.

    Raises:
        UserError: If a setting that was given is another one than the run's.
    """
    given, run_dir, corpus = asked.given, asked.run_dir, asked.corpus
    others = ("run_dir", "tokenizer", "corpus")
    named = {name: x for name, x in given.items() if name not in others}
    name = begun.corpus
    if _is_other_text(begun, corpus):
        logger.warning(
            "The text in %s has changed since %s began, which goes on with "
            "what it began with; to train on this one, give another `run_dir` "
            "(`init_from` takes the weights over).",
            *(corpus.name if corpus else name, run_dir),
        )
        corpus = None
    if corpus:
        name = absolute_name(corpus.name)
    if "symbols" in named:
        rule = {"normalization": begun.training.normalization}
        named["symbols"] = _symbols_of(given, name, rule)
    if "init_from" in named:
        named["init_from"] = str(pathlib.Path(given["init_from"]).resolve())
    run = begun.resumed(named, run_dir)
    run = dataclasses.replace(run, corpus=name)
    return asked._replace(run=run, corpus=corpus)


def _is_other_text(begun: RunConfig, corpus: Corpus | None) -> bool:
    """Compare sizes, and times where names are the same, with those noted."""
    if begun.text is None:
        return False
    if corpus:
        now = open_text(begun, corpus).state_of(*begun.splits)
    else:
        now = [
            files.state(row[0]) if os.path.isfile(row[0]) else row
            for row in begun.text
        ]
    return len(now) != len(begun.text) or any(
        row[1] != old[1] or (row[0] == old[0] and row[2] != old[2])
        for row, old in zip(now, begun.text, strict=True)
    )


def _refuse_two_vocabularies(given: Mapping[str, Any]) -> None:
    of_new = [x for x in ("symbols", "normalization") if x in given][:1]
    made = [x for x in ("tokenizer", "init_from") if x in given]
    if len(brought := of_new + made) > 1:
        raise UserError(
            f"Expected `{brought[0]}` or `{brought[1]}`, which brings its own "
            "vocabulary, received both; leave one out."
        )


def _symbols_of(
    given: Mapping[str, Any], corpus: str, settings: Mapping[str, Any]
) -> tuple | None:
    """Read the symbols asked for, with the tags of a mixture among them."""
    if {"tokenizer", "init_from"} & given.keys():
        return None
    form: Form = "NFKC" if settings["normalization"] == "nfkc" else "NFC"
    pieces = read_symbols(given["symbols"], form) if "symbols" in given else ()
    if tags := set(tags_of(corpus)) - set(pieces):
        pieces = read_symbols([*pieces, *sorted(tags)], form)
    return pieces or None


def _fitting(
    corpus: Source | None, opening: Mapping[str, str]
) -> tuple[str, Any]:
    """Choose the preset that fits a corpus, if none is named, and open it."""
    if corpus == DEMO:
        return DEMO, corpus
    opened = open_corpus(corpus, **opening)
    split = opening.get("train_split", "train")
    pairs = opened.pairs(split, "train_split")
    some = sum(1 for _ in itertools.islice(pairs, ENOUGH_FOR_BASE))
    return "base" if some == ENOUGH_FOR_BASE else "tiny", opened


def open_text(run: RunConfig, source: Source) -> Corpus:
    """Open the text of a run, and hold out a validation split if asked to.

    Raises:
        UserError: As in `open_corpus` and `hold_out`.
    """
    languages = run.source_lang, run.target_lang
    corpus = open_corpus(source, *languages, run.train_split)
    share = run.training.validation_share
    return hold_out(corpus, *run.splits, share) if share else corpus


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
