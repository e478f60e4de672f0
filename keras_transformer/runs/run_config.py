"""The configuration of a run, and its vocabulary.

This module needs neither Keras nor TensorFlow: reading it is instant.
"""

import dataclasses
import functools
import os
import pathlib
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from keras_transformer import __version__
from keras_transformer.config import (
    MAX_SOURCE_LENGTH,
    SETTINGS,
    ModelConfig,
    Search,
    SettingError,
    TrainingConfig,
    UserError,
    logger,
)
from keras_transformer.machine import files
from keras_transformer.runs.layout import CONFIG_FILE, TOKENIZER_FILE, has_begun
from keras_transformer.settings import checked_value, setting_of

if TYPE_CHECKING:  # Of TensorFlow.
    from keras_transformer.data.tokenizer import Tokenizer

Part = TypeVar("Part", ModelConfig, TrainingConfig, Search)
_WITHOUT_WEIGHTS = ("dropout", "attention_dropout", "restriction")
_OF_A_TEXT = ("validation_share", "target_bleu", "patience")
# What is asked for beside the settings of the parts.
ASKED: list[str] = (
    "source_lang target_lang train_split validation_split symbols"
).split()
# Errors of reading a configuration that is not as it was written.
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, UserError)


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All that later verbs need to know about a run, as `config.json`.

    What is None does not exist, or not yet.
    """

    preset: str  # The one that it started from.
    corpus: str  # A name as `open_corpus` takes it, or `memory`.
    requested_vocab_size: int  # The corpus may not fill it.
    model: ModelConfig
    training: TrainingConfig
    source_lang: str = "en"
    target_lang: str = "de"
    train_split: str = "train"
    validation_split: str = "val"
    search: Search = Search()  # Of later verbs, by default.
    # Path, size and time of each file of the text when the run began.
    text: list[list[Any]] | None = None
    # The first weights: their `run_dir`, the names of the averaged
    # `checkpoints`, and the checksum `weights`.
    initial: Mapping[str, Any] | None = None
    vocabulary: str | None = None  # The checksum of its file.
    symbols: tuple[str, ...] | None = None  # They stay one piece.
    is_imported: bool = False  # And never trained by us.
    # `strategy` and `minutes` of the last session, which change no result.
    machine: Mapping[str, Any] | None = None
    version: str | None = __version__  # The one that began the run.
    plan: str | None = None  # The checksum of the plan of its batches.
    # What it was trained with and this version does not have.
    removed: Mapping[str, Any] | None = None

    @classmethod
    def from_preset(
        cls,
        preset: str | None = None,
        *,
        corpus: str,
        init_from: str | os.PathLike | None = None,
        **settings: Any,
    ) -> "RunConfig":
        """Take a preset, or `base`, with the settings that are not None.

        With `init_from`, a run directory, the run takes over its weights and
        vocabulary, and so its shape; also its search and, unless `preset` names
        another one, its preset and training, without what ended that.
        """
        from keras_transformer.data.languages import check_sides

        settings = {n: v for n, v in settings.items() if v is not None}
        own = {n: settings.pop(n) for n in ASKED if n in settings}
        initial = source = begun = None
        if init_from is not None:
            source = cls.load(init_from)
            _take_shape(settings, source.model, init_from)
            if preset is None:
                ends: dict[str, Any] = dict.fromkeys(_OF_A_TEXT)
                begun = dataclasses.replace(source.training, **ends)
                preset = source.preset
            initial = {"run_dir": str(pathlib.Path(init_from).resolve())}
        from keras_transformer.presets import preset_of

        preset = preset or "base"
        row = preset_of(preset)
        model = _pop_into(settings, row.model)
        training = _pop_into(settings, begun or row.training)
        search = _pop_into(settings, (source or row).search)
        if not isinstance(model.activation, str):
            expected = f"a name that {CONFIG_FILE} can keep"
            raise SettingError("activation", expected, model.activation)
        rows = model.max_positions - model.first_position
        if model.positions == "learned" and training.max_length > rows:
            # Later positions would share the last row.
            expected = f"at most {rows}, the model's learned positions"
            raise SettingError("max_length", expected, training.max_length)
        run = cls(
            preset=preset,
            corpus=corpus,
            requested_vocab_size=model.vocab_size,
            model=model,
            training=training,
            search=search,
            initial=initial,
            **own,
            **settings,
        )
        check_sides(run.source_lang, run.target_lang)
        if run.train_split == run.validation_split:
            raise UserError(
                "Expected two splits, `train_split` and `validation_split`, "
                f"received {run.train_split} for both; change one."
            )
        return run

    @property
    def splits(self) -> tuple[str, str]:
        """Names of the splits to train and to validate on."""
        return self.train_split, self.validation_split

    @property
    def held_out(self) -> list[str]:
        """Names of the splits that the training text should not have."""
        return sorted({self.validation_split, "test"} - {self.train_split})

    @property
    def longest_source(self) -> int:
        """Tokens after which a validation or test source is cut."""
        # A model is judged on all lengths that it was trained on.
        return max(self.training.max_length, MAX_SOURCE_LENGTH)

    def with_changes(
        self, given: Mapping[str, Any], run_dir: str | os.PathLike
    ) -> "RunConfig":
        """Apply the settings given that may change; refuse other differences.

        `init_from` and `vocab_size` are compared as they were asked for. One
        sentence names all that differs.
        """
        if self.removed:
            raise UserError(self._of_removed(run_dir))
        known = {
            **{name: getattr(self, name) for name in ("preset", *ASKED)},
            **vars(self.model),
            **vars(self.training),
            **self.search.kept_by_run(),
            "vocab_size": self.requested_vocab_size,
            "init_from": (self.initial or {}).get("run_dir"),
        }
        changes, differs = {}, {}
        for name, value in given.items():
            field = SETTINGS.get(name)
            value = checked_value(field, value) if field else value
            if field and setting_of(field).may_change:
                changes[name] = value
            elif value != known[name]:
                differs[name] = value
        if differs:
            # The preset first: it explains others.
            names = sorted(differs, key=lambda name: name != "preset")
            old = ", ".join(f"{name} = {known[name]}" for name in names)
            new = ", ".join(str(differs[name]) for name in names)
            way_on = "leave that out, or give another `run_dir`"
            if self.is_imported:
                way_on = f"give another `run_dir` with `init_from` {run_dir}"
            raise UserError(
                f"{run_dir} was trained with {old}, this command says {new}; "
                f"{way_on}."
            )
        search = _pop_into(changes, self.search)
        training = _pop_into(changes, self.training)
        return dataclasses.replace(self, search=search, training=training)

    def _of_removed(self, run_dir: str | os.PathLike) -> str:
        """Say what a run trained with removed settings is still good for."""
        named = ", ".join(f"{n} = {x}" for n, x in (self.removed or {}).items())
        return (
            f"{run_dir} was trained by version {self.version or 'unknown'} "
            f"with {named}, which this one no longer has; translation and "
            "export go on, training does not."
        )

    def save(self, run_dir: str | os.PathLike) -> None:
        """Write `config.json`, whole or not at all, unless it says the same."""
        path = pathlib.Path(run_dir) / CONFIG_FILE
        text = files.to_json(dataclasses.asdict(self))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            files.write_text(path, text)

    @classmethod
    def load(cls, run_dir: str | os.PathLike) -> "RunConfig":
        """Read `config.json`.

        A setting that did not exist when the run began has its default. Of
        those that this version does not have, `removed` keeps what was on.
        """
        path = pathlib.Path(run_dir) / CONFIG_FILE
        if not path.is_file():
            raise UserError(
                f"Expected a run directory with a {CONFIG_FILE}, found none at "
                f"{path}; give that of a training, not of an export."
            )
        fields: dict[str, Any] = {}
        try:
            fields = files.from_json(path.read_text(encoding="utf-8"))
            training, removed = _known(TrainingConfig, fields["training"])
            _convert(training, removed)
            search, others = _known(Search, fields.get("search", {}))
            removed |= others
            fields["removed"] = removed or fields.get("removed")
            if fields.get("symbols") is not None:
                fields["symbols"] = tuple(fields["symbols"])
            fields["model"] = ModelConfig(**fields["model"])
            fields["training"] = TrainingConfig(**training)
            fields["search"] = Search(**search)
            known, _ = _known(cls, {"version": None, **fields})
            run = cls(**known)
        except _UNREADABLE as error:
            version = fields.get("version")
            advice = "restore the file or choose another folder"
            if version not in (None, __version__):
                advice = f"install version {version}, which wrote it"
            raise UserError(
                f"{path} is not a configuration this version can read "
                f"({error}); {advice}."
            ) from None
        if run.removed:
            _warn_once(run._of_removed(run_dir))
        return run


def begun_config(run_dir: str | os.PathLike) -> RunConfig | None:
    """Return the configuration of a run that has begun; None otherwise."""
    return RunConfig.load(run_dir) if has_begun(run_dir) else None


def _pop_into(settings: dict[str, Any], part: Part) -> Part:
    """Pop the settings that are fields of `part` into it."""
    names = settings.keys() & SETTINGS.keys() & vars(part).keys()
    own = {name: settings.pop(name) for name in names}
    if isinstance(part, ModelConfig):
        own = {**part.as_given(), **own}
    return dataclasses.replace(part, **own)


def _take_shape(
    settings: dict[str, Any], source: ModelConfig, init_from: str | os.PathLike
) -> None:
    """Add the shape of another run's weights; refuse a different one."""
    for field in dataclasses.fields(source):
        name, value = field.name, getattr(source, field.name)
        given = settings.setdefault(name, value)
        if given != value and name not in _WITHOUT_WEIGHTS:
            raise UserError(
                f"Expected the shape of {init_from}, whose {name} is {value}, "
                f"received {given}; leave out `{name}`."
            )


_warn_once = functools.cache(logger.warning)  # Verbs read it several times.


def _known(kind: Any, fields: Mapping[str, Any]) -> tuple[dict, dict]:
    """Part what a class has fields for from what else is on."""
    names = {field.name for field in dataclasses.fields(kind)}
    known = {name: x for name, x in fields.items() if name in names}
    return known, {n: x for n, x in fields.items() if x and n not in names}


def _convert(training: dict[str, Any], others: dict[str, Any]) -> None:
    """Say what earlier versions said in the words of this one."""
    others.pop("normalization", None)  # Its vocabulary keeps the rules.
    minutes = others.pop("checkpoint_minutes", None)
    steps = others.pop("checkpoint_steps", None)
    if steps or minutes:
        in_minutes = f"{minutes or 0:f}".rstrip("0").rstrip(".") + "m"
        training["checkpoint_every"] = str(steps or in_minutes)
    if training.get("length_growth", 0) is None:  # The default.
        del training["length_growth"]


def load_vocabulary(
    run_dir: str | os.PathLike, run: RunConfig | None = None
) -> "Tokenizer":
    """Read `tokenizer.model`, for a run whose configuration may be at hand.

    One that has changed is refused: other pieces would be other words.
    """
    path = pathlib.Path(run_dir) / TOKENIZER_FILE
    run = run or RunConfig.load(run_dir)
    tokenizer = load_tokenizer(path)
    is_same = run.vocabulary in (None, checksum_of(tokenizer))
    if not is_same or tokenizer.vocab_size != run.model.vocab_size:
        raise UserError(
            f"{path} is not the vocabulary that this run was trained with; "
            "restore the file."
        )
    if not run.training.term_share:  # The model never met its marks.
        tokenizer.has_marks = False
    return tokenizer


def load_tokenizer(path: str | os.PathLike) -> "Tokenizer":
    """Read a vocabulary, or the two of an imported run, from either's place."""
    from keras_transformer.data.tokenizer import Tokenizer

    if isinstance(path, str | os.PathLike):
        path = pathlib.Path(path)
        path = path / TOKENIZER_FILE if path.is_dir() else path
        if zipfile.is_zipfile(path):
            from keras_transformer.data.paired_tokenizer import PairedTokenizer

            return PairedTokenizer.load(path)
    return Tokenizer.load(path)


def checksum_of(tokenizer: "Tokenizer") -> str:
    """Compute CRC-32 of the file that a tokenizer is written to."""
    return f"{zlib.crc32(tokenizer.model):08x}"
