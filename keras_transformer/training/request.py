"""A session of a training: from what was asked for to what is trained.

This module does not need TensorFlow, so a mistake shows before it loads.
"""

import dataclasses
import functools
import itertools
import logging
import os
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keras_transformer.config import SETTINGS, ModelConfig, UserError
from keras_transformer.data import corpora
from keras_transformer.data.corpora import Corpus, Source
from keras_transformer.data.pieces import TERM_SYMBOLS, read_symbols
from keras_transformer.machine import files
from keras_transformer.presets import PRESETS
from keras_transformer.runs.run_config import ASKED, RunConfig, begun_config
from keras_transformer.settings import (
    Checked,
    kind_of,
    nearest,
    setting,
    settings_of,
)

if TYPE_CHECKING:  # Of TensorFlow.
    from keras_transformer.data.tokenizer import Tokenizer

logger = logging.getLogger("keras_transformer")
# From this number of pairs on, `base` is the preset unless you name one.
ENOUGH_FOR_BASE = 100_000
LESS_MEMORY = (
    "the same again with twice the `accumulate` halves the memory of "
    "activations and leaves the batches as they are; a smaller `batch_tokens` "
    "needs another `run_dir`"
)


@dataclasses.dataclass(frozen=True)
class Session(Checked):
    """A training as it was asked for, and what that makes of it.

    A later session may choose `minutes`, `strategy`, `callbacks` and the
    settings that may change, such as `steps`, anew. Every update has the same
    batch and learning rate. Another `strategy` or `accumulate` changes the
    draws of dropout and the rounding of sums.

    The `settings` are those given of the model, its training and its search;
    `run` is what they make of it or, of a begun run, its `config.json` with
    the given settings that may change. Once `understand` returns, `corpus` is
    opened, without anything held out; a begun run has none unless it was given
    from another place.
    """

    run_dir: pathlib.Path = setting(
        pathlib.Path("runs/mine"), "the run directory"
    )
    corpus: Source | None = setting(
        None,
        "text to learn from: demo, a folder of SPLIT.LANG "
        "files, or tfds:NAME[/CONFIG]; with several, train on all of them; "
        "WEIGHT 0.5 uses every second pair, 2 uses each pair twice; <TAG> "
        "becomes the first word of every source",
        metavar="NAME[:WEIGHT][:<TAG>]",
        several="corpora",
        or_object=True,
    )
    preset: str | None = setting(
        None,
        f"one of {', '.join(PRESETS)}; by the number of pairs if not given",
    )
    recipe: str | Sequence[str] | None = setting(
        None,
        "name of a recipe of this package, such as small-corpus, or several; "
        "your other arguments override it",
        flag=False,
        or_object=True,
    )
    source_lang: str | None = setting(
        None, "language of the source side; en if not given"
    )
    target_lang: str | None = setting(
        None, "language of the target side; de if not given"
    )
    train_split: str | None = setting(
        None, "split to train on; train if not given"
    )
    validation_split: str | None = setting(
        None, "split to validate on; val if not given"
    )
    tokenizer: pathlib.Path | Any = setting(
        None,
        "a sentencepiece model made elsewhere, instead of a new one",
        metavar="FILE",
        or_object=True,
    )
    symbols: pathlib.Path | Sequence[str] | None = setting(
        None,
        "strings, one a line, that stay one piece in the vocabulary, a new "
        "one or that of `init_from`",
        metavar="FILE",
        or_object=True,
    )
    init_from: pathlib.Path | None = setting(
        None,
        "start with the weights of another run, and with its vocabulary "
        "unless `tokenizer` gives another one",
        metavar="RUN",
    )
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
    callbacks: Sequence[Any] = setting(
        (),
        "Keras callbacks, called after the package's own, on the first worker "
        "alone; a training is one epoch of as many batches as it has updates",
        flag=False,
        several="a list of Keras callbacks",
    )
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    run: RunConfig = None  # type: ignore

    def given(self) -> dict[str, Any]:
        """Collect what was given of what binds the run."""
        given = {name: getattr(self, name) for name in _OF_RUN}
        given = {name: x for name, x in given.items() if x is not None}
        return {**given, **self.settings}

    @functools.cached_property
    def text(self) -> Corpus:
        """The text of the run, opened even if that has begun."""
        return open_text(self.run, self.corpus or self.run.corpus)


SESSION_SETTINGS = settings_of(Session)
# What a later session may repeat but not change.
_OF_RUN = ("preset", *ASKED, "init_from")


def with_recipes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, over what its recipes give."""
    given = {name: x for name, x in arguments.items() if x is not None}
    named, of_recipe = given.pop("recipe", ()), dict[str, Any]()
    for name in [named] if isinstance(named, str | os.PathLike) else named:
        of_recipe |= recipe(name)
    names = of_recipe.keys() | given.keys()
    if "init_from" in names:  # It has a shape of its own.
        for name in settings_of(ModelConfig).keys() - {"dropout"}:
            of_recipe.pop(name, None)
    if names & {"tokenizer", "init_from"}:
        of_recipe.pop("vocab_size", None)
        if given.pop("vocab_size", None):
            logger.warning("`vocab_size` has no effect beside a vocabulary.")
    return {**of_recipe, **given}


def understand(**arguments: Any) -> Session:
    """Turn the arguments of `kt.train` into what is trained, and check them.

    The text is opened, unless a run that has begun goes on with its own.
    """
    given = with_recipes(arguments)
    if "symbols" in given and "tokenizer" in given:  # A run's gets them added.
        why = "A `tokenizer` brings its own vocabulary; leave out `symbols`."
        raise UserError(why)
    own = {name: given.pop(name) for name in SESSION_SETTINGS if name in given}
    for name in given.keys() - SETTINGS:
        raise UserError(
            f"Expected an argument of a training, received {name}"
            f"{nearest(name, [*SETTINGS, *SESSION_SETTINGS])}."
        )
    session = Session(**own, settings=given)
    begun = begun_config(session.run_dir)
    corpus = _opened(session, begun)
    session = dataclasses.replace(session, corpus=corpus)
    if begun:
        return session_of_begun(begun, session)
    if corpus is None:
        raise UserError(
            "Expected a `corpus` or, in `run_dir`, a run that has begun; give "
            "demo, a folder, tfds:NAME or pairs of texts."
        )
    settings = session.given()
    preset = settings.pop("preset", None)
    if not (preset or session.init_from):
        preset = _fitting(corpus, session.train_split or "train")
    name = corpora.absolute_name(corpus.name)
    run = RunConfig.from_preset(preset, corpus=name, **settings)
    run = dataclasses.replace(run, symbols=_symbols_of(session, run))
    return dataclasses.replace(session, run=run)


def _opened(session: Session, begun: RunConfig | None) -> Corpus | None:
    """Open the text that was given, unless it is what the run began with."""
    if session.corpus is None:
        return None
    name: Any = corpora.one_name(session.corpus)
    if isinstance(name, str | os.PathLike):
        name = corpora.absolute_name(name)
        if begun and name == begun.corpus:
            return None
    sides = ("source_lang", "target_lang", "train_split")
    opening = {side: getattr(begun or session, side) for side in sides}
    opening = {side: x for side, x in opening.items() if x is not None}
    return corpora.open_corpus(name, **opening)


def session_of_begun(begun: RunConfig, session: Session) -> Session:
    """Return what is asked of a run that has begun, and so needs no text."""
    run_dir, named = session.run_dir, session.given()
    corpus: Any = session.corpus
    name, text = begun.corpus, begun.text
    if _is_other_text(begun, corpus):
        logger.warning(
            "The text in %s has changed since %s began (size, time, weight or "
            "tag); the run goes on with what it read then. To train on the new "
            "text, give another `run_dir`, with `init_from` for the weights.",
            corpus.name if corpus else name,
            run_dir,
        )
        corpus = None
    if corpus:  # It may have moved.
        name = corpora.absolute_name(corpus.name)
        text = text and open_text(begun, corpus).state_of(*begun.splits)
    if session.symbols is not None:
        named["symbols"] = _symbols_of(session, begun)
    if session.init_from is not None:
        named["init_from"] = str(session.init_from.resolve())
    run = begun.with_changes(named, run_dir)
    run = dataclasses.replace(run, corpus=name, text=text)
    return dataclasses.replace(session, run=run, corpus=corpus)


def _is_other_text(begun: RunConfig, corpus: Corpus | None) -> bool:
    """Compare weights, tags and sizes, and times where names are the same."""
    if begun.text is None or (not corpus and begun.corpus == corpora.MEMORY):
        return False
    if corpus:
        parts = map(corpora.parts_of, (corpus.name, begun.corpus))
        mixed, old = (
            [(os.path.isabs(x.name) or x.name, *x[1:]) for x in each]
            for each in parts
        )
        if mixed != old:  # But for folders, which may have moved.
            return True
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


def _symbols_of(session: Session, run: RunConfig) -> tuple | None:
    """Read the symbols asked for, with those that the training needs."""
    asked = session.symbols
    if asked is None and (session.tokenizer or session.init_from):
        return None
    pieces = read_symbols(asked) if asked is not None else ()
    if more := {*own_symbols(run)} - {*pieces}:
        pieces = read_symbols([*pieces, *sorted(more)])
    return pieces or None


def own_symbols(run: RunConfig) -> tuple[str, ...]:
    """Return the tags of a run's mixture, and the marks of terms."""
    marks = TERM_SYMBOLS if run.training.term_share else ()
    return (*corpora.tags_of(run.corpus), *marks)


def check_symbols(symbols: Sequence[str], tokenizer: "Tokenizer") -> None:
    """Refuse a vocabulary that would spell tags of a mixture or marks."""
    for symbol in lacking_symbols(symbols, tokenizer):
        raise UserError(
            f"The vocabulary lacks the piece {symbol}, which `corpus` or "
            "`term_share` needs; leave that out, or learn a new vocabulary."
        )


def lacking_symbols(
    symbols: Sequence[str], tokenizer: "Tokenizer"
) -> list[str]:
    """Return those that are no pieces."""
    pieces = symbols and tokenizer.pieces(range(tokenizer.vocab_size))
    return [symbol for symbol in symbols if symbol not in pieces]


def _fitting(corpus: Corpus, split: str) -> str:
    """Choose a preset by the number of pairs."""
    if corpus.name == corpora.DEMO:
        return corpora.DEMO
    pairs = corpus.pairs(split, "train_split")
    some = sum(1 for _ in itertools.islice(pairs, ENOUGH_FOR_BASE))
    return "base" if some == ENOUGH_FOR_BASE else "tiny"


def open_text(run: RunConfig, source: Source) -> Corpus:
    """Open the text of a run, and hold out a validation split if asked to."""
    languages = run.source_lang, run.target_lang
    corpus = corpora.open_corpus(source, *languages, run.train_split)
    share = run.training.validation_share
    return corpora.hold_out(corpus, run.splits, share) if share else corpus


def recipe(name: str | os.PathLike) -> dict[str, Any]:
    """Read a recipe of this package as arguments of `keras_transformer.train`.

    `train("runs/mine", corpus="my-text", recipe="small-corpus", steps=8_000)`
    takes it whole; your other arguments override it.

    Args:
        name: One of this package's, or a file of flags as a shell reads them,
            with comments after a #.

    Returns:
        Only the arguments that the recipe gives.
    """
    folder = pathlib.Path(__file__).parents[1] / "recipes"
    path = pathlib.Path(name)
    if not path.is_file() and (own := folder / f"{name}.args").is_file():
        path = own
    fields, arguments = {**SETTINGS, **SESSION_SETTINGS}, dict[str, Any]()
    try:
        # Windows may put a byte-order mark before the text.
        words = iter(shlex.split(path.read_text("utf-8-sig"), comments=True))
        for word in words:
            flag, _, given = word.partition("=")
            argument = flag.removeprefix("--").replace("-", "_")
            kind: Any = kind_of(fields[argument])
            given = given or ("yes" if kind is bool else next(words, "--"))
            if not flag.startswith("--") or given.startswith("--"):
                raise ValueError(f"--name and its value, not {flag} {given}")
            value = True if kind is bool else kind(given)
            if argument == "corpus":  # Several are mixed.
                value = [*arguments.get(argument, ()), value]
            arguments[argument] = value
    except (OSError, KeyError, ValueError) as error:
        known = ", ".join(sorted(path.stem for path in folder.glob("*.args")))
        raise UserError(
            f"Expected a recipe ({known}) or a file of flags of a training and "
            f"# comments, received {name} ({error})."
        ) from None
    return arguments


@contextmanager
def log_shown() -> Iterator[None]:
    """Show the log unless the caller has configured logging."""
    package = logging.getLogger("keras_transformer")
    level, handler = package.level, logging.StreamHandler()
    form = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    handler.setFormatter(form)
    if not package.hasHandlers():
        package.addHandler(handler)
    if level == logging.NOTSET and not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.setLevel(level)
        package.removeHandler(handler)
